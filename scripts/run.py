"""`make run`: from a bare machine to a JupyterLab that answers, in one command; the second time in seconds."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from scripts import base, build, container, keys, names, process, ui, ways_in
from scripts.container import Container
from scripts.engine import Engine, ensure_engine, find_engine, gpu_options, identity_options
from scripts.ways_in import Published

SECONDS_TO_ANSWER = 120


@dataclass(frozen=True)
class Options:
    """What the caller may say: NAME, PORT, SSH_PORT, BIND, IMAGE, and settings of the image."""

    name: str
    image: str
    published: Published
    given: tuple[str, ...]  # which of Published's fields were given, and not just taken as usual

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Options:
        """Read and check them."""
        usual = Published()
        published = Published(
            bind=_bind(environ.get("BIND") or usual.bind),
            port=_port("PORT", environ.get("PORT") or str(usual.port)),
            ssh_port=_port("SSH_PORT", environ.get("SSH_PORT") or str(usual.ssh_port)),
        )
        given = tuple(name.lower() for name in ("BIND", "PORT", "SSH_PORT") if environ.get(name))
        return cls(container.name(), environ.get("IMAGE", ""), published, given)


def _port(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        what = f"{variable} must be a whole number from 1 to 65535"
        raise ui.UserError(what, f"{variable}={text}", f"make run {variable}=8899", 64)
    return int(text)


def _bind(address: str) -> str:
    try:
        socket.inet_pton(socket.AF_INET, address)
    except OSError:
        what = "BIND must be an IPv4 address of this machine, or 0.0.0.0 for all of them"
        raise ui.UserError(what, f"BIND={address}", "make run BIND=0.0.0.0", 64) from None
    return address


def main() -> int:
    """Find or make all that is needed, start the container, and say how to get in."""
    options = Options.read(os.environ)
    engine, image = ensure_image(options.image)
    found = settle(engine, options, image)
    if found is None:
        create(engine, options, image)
    elif not found.running:
        restart(engine, found, options)
    ui.steps.summary()
    ways_in.tell(engine, options.name, (found and Published.parse(found.published)) or options.published)
    return 0


def ensure_image(wanted: str = "") -> tuple[Engine, str]:
    """Find the image, or build it with what that needs."""
    engine = find_engine() or ensure_engine(need_build=not wanted)
    if wanted:
        if not engine.image_id(wanted):
            raise ui.UserError(f"there is no image {wanted} here", f"IMAGE={wanted}", "make run   (builds the image)")
        return engine, wanted
    variant = base.choose_variant(engine)
    image = names.image_of(variant)
    if not engine.image_id(image):
        engine = ensure_engine(need_build=True)
        ui.say(f"The image {image} does not exist here yet, so it is built now, once.")
        build.build(engine, [variant])
    return engine, image


def settle(engine: Engine, options: Options, image: str) -> Container | None:
    """Decide what becomes of a container that exists. Nothing is lost: what runs stays, what is replaced is kept."""
    found = container.find(engine, options.name)
    if found is None:
        return None
    differences = differs(engine, found, options, image)
    if found.running:
        ui.say(f"The container {options.name} runs already, and is used as it is.")
        if differences:
            ui.say(f"It has {' and '.join(differences)}. To replace it: make stop, then this command again.")
        return found
    if not differences:
        return found
    kept = f"{options.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    renamed = engine.ask("rename", options.name, kept)
    if not renamed.ok:
        do = f"{engine.kind} rm {options.name}, when nothing in it is needed"
        raise ui.UserError(f"the stopped container {options.name} could not be renamed", renamed.last_words, do)
    ui.say(f"The stopped container {options.name} has {' and '.join(differences)}, so a new one takes its place.")
    ui.say(f"The old one is kept as {kept}; when nothing in it is needed: {engine.kind} rm {kept}")
    return None


def differs(engine: Engine, found: Container, options: Options, image: str) -> list[str]:
    """List how a container differs from what the caller asks for; what was not asked for may be as it is."""
    differences = []
    if not container.is_from(engine, found, image):
        differences.append(f"another image than {image}")
    has = Published.parse(found.published)
    if has is None or any(getattr(has, field) != getattr(options.published, field) for field in options.given):
        differences.append("other ports")
    changed = [name for name, value in container.given(os.environ).items() if found.environ.get(name) != value]
    if changed:
        differences.append(f"another {', '.join(changed)}")
    return differences


def restart(engine: Engine, found: Container, options: Options) -> None:
    """Start a stopped container again, with all that is in it."""
    published = Published.parse(found.published) or options.published
    check_ports(engine, published)
    with ui.steps.step("start the container", f"{found.name}, which was stopped, with all that is in it"):
        try:
            _expect_started(engine.ask("start", found.name))
            wait(engine, found.name, published)
        except ui.UserError as error:
            error.do += (
                f"\nor begin with a new container, without what is in this one: {engine.kind} rm -f {found.name}"
            )
            raise


def create(engine: Engine, options: Options, image: str) -> None:
    """Make and start a container, and wait until its services answer."""
    check_ports(engine, options.published)
    folder = container.code_folder()
    container.say_owner(engine, folder)
    gpus, said = gpu_options(engine)
    ui.say(said)
    more = [*gpus, *identity_options(engine), *container.setting_options(os.environ), *key_options()]
    with ui.steps.step("start the container", f"{options.name} from {image}"):
        try:
            _expect_started(process.capture(run_command(engine, options, image, more), 300))
            wait(engine, options.name, options.published)
        except ui.UserError:
            # One that never came up holds nothing; left there, it would be what the next `make run` starts.
            found = container.find(engine, options.name)
            if found and not found.running:
                engine.ask("rm", options.name)
            raise


def run_command(engine: Engine, options: Options, image: str, more: list[str]) -> list[str]:
    """Write the command line that makes the container."""
    published = options.published
    return engine.command(
        "run",
        "--detach",
        *("--name", options.name),
        *("--label", names.LABEL),
        *("--label", f"{container.PUBLISHED_LABEL}={published.text()}"),
        *("--publish", f"{published.bind}:{published.port}:8888"),
        *("--publish", f"{published.bind}:{published.ssh_port}:22"),
        *("--volume", f"{names.CODE}:/workspace/code"),
        *("--volume", f"{options.name}-home:/home/user"),
        *("--volume", f"{options.name}-host-keys:/etc/ssh/host_keys"),
        *more,
        image,
    )


def key_options() -> list[str]:
    """Let the caller's own public keys log in; `make ssh` and VS Code then need nothing more."""
    return [part for variable, value in keys.to_pass().items() for part in ("-e", f"{variable}={value}")]


def check_ports(engine: Engine, published: Published) -> None:
    """Stop when another program has a port: the engine's own message is hard to read, and leaves a container."""
    for variable, port in (("PORT", published.port), ("SSH_PORT", published.ssh_port)):
        taken = why_taken(published.bind, port)
        if taken:
            holder = engine.ask("ps", "--filter", f"publish={port}", "--format", "{{.Names}}").out.split()
            raise ui.UserError(
                f"port {port} of this machine is taken",
                taken + (f"; the container {holder[0]} publishes it" if holder else ""),
                f"choose another: make run {variable}={port + 1}",
            )


def why_taken(bind: str, port: int) -> str:
    """Try to listen there: an empty answer means that it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except PermissionError:
            return ""  # a low port: the engine may have it though the caller may not
        except OSError as error:
            return f"{bind}:{port}: {error.strerror}"
    return ""


def _expect_started(answer: process.Result) -> None:
    if not answer.ok:
        do = "mend it, and run the same command again"
        raise ui.UserError("the container did not start", answer.last_words, do)


def wait(engine: Engine, name: str, published: Published) -> None:
    """Wait until what the container wrote down answers, or tell why nothing will."""

    def settled() -> bool:
        found = container.find(engine, name)
        if found is None or not found.running:
            raise _gone(engine, name, found)
        seen = ways_in.services(engine, name)
        return bool(seen) and all(ways_in.answers(ways_in.outside(published, url)) for url in seen.values() if url)

    if not process.wait_until(settled, SECONDS_TO_ANSWER, pause=0.5):
        what = f"the container runs, but its services did not answer within {SECONDS_TO_ANSWER} s"
        raise ui.UserError(what, last_lines(engine, name), f"make logs; {engine.kind} rm -f {name}; then make run")


def _gone(engine: Engine, name: str, found: Container | None) -> ui.UserError:
    code = found.exit_code if found else "unknown"
    seen = f"exit code {code}; it said last:\n{last_lines(engine, name)}"
    return ui.UserError("the container ended during its start", seen, "mend it, and run the same command again")


def last_lines(engine: Engine, name: str, count: int = 8) -> str:
    """Give what the container said last."""
    logs = engine.ask("logs", "--tail", str(count), name)
    return "\n".join((logs.out + logs.err).strip().splitlines()[-count:]) or "(nothing)"


if __name__ == "__main__":
    ui.entry("run", main)
