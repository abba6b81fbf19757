"""`make run`: from a bare machine to a JupyterLab that answers, in one command; the second time in seconds."""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from scripts import base, build, container, names, process, ui
from scripts.container import Container
from scripts.engine import Engine, ensure_engine, find_engine, gpu_options, identity_options

SECONDS_TO_ANSWER = 120
INSIDE = {"jupyter": 8888, "sshd": 22}


@dataclass(frozen=True)
class Options:
    """What the caller may set: NAME, PORT, SSH_PORT, BIND, IMAGE."""

    name: str
    port: int
    ssh_port: int
    bind: str
    image: str

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Options:
        """Read and check them."""
        return cls(
            name=container.name(),
            port=_port(environ, "PORT", 8888),
            ssh_port=_port(environ, "SSH_PORT", 2222),
            bind=_bind(environ.get("BIND") or "127.0.0.1"),
            image=environ.get("IMAGE", ""),
        )


def _port(environ: Mapping[str, str], variable: str, usual: int) -> int:
    text = environ.get(variable) or str(usual)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        what = f"{variable} must be a whole number from 1 to 65535"
        raise ui.UserError(what, f"{variable}={text}", f"make run {variable}={usual}", 64)
    return int(text)


def _bind(address: str) -> str:
    try:
        socket.inet_pton(socket.AF_INET, address)
    except OSError:
        raise ui.UserError(
            "BIND must be an IPv4 address of this machine",
            f"BIND={address}",
            "make run BIND=0.0.0.0 opens it to all",
            64,
        ) from None
    return address


def main() -> int:
    """Find or make all that is needed, start the container, and say how to get in."""
    options = Options.read(os.environ)
    engine, image = ensure_image(options.image)
    found = settle(engine, options, image)
    if found is None or not found.running:
        begin(engine, options, image, found)
    ui.steps.summary()
    tell(engine, options)
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
        ui.say(f"The image {image} does not exist here yet, so it is built now. This happens once.")
        build.build(engine, [variant])
    return engine, image


def settle(engine: Engine, options: Options, image: str) -> Container | None:
    """Decide what becomes of a container that exists. Nothing is lost: what runs stays, what is replaced is kept."""
    found = container.find(engine, options.name)
    if found is None:
        return None
    fits = container.same_image(engine, found, image) and found.settings == settings_of(options)
    if found.running:
        ui.say(f"The container {options.name} runs already: it is used as it is.")
        if not fits:
            ui.say("It was started from another image or with other settings. To replace it: make stop, then make run.")
        return found
    if fits:
        return found
    kept = f"{options.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    renamed = engine.ask("rename", options.name, kept)
    if not renamed.ok:
        raise ui.UserError(f"the old container {options.name} could not be renamed", renamed.last_words, "make clean")
    ui.say(f"The stopped container {options.name} has another image or other settings: a new one takes its place.")
    ui.say(f"The old one is kept as {kept}; when nothing in it is needed: {engine.kind} rm {kept}")
    return None


def settings_of(options: Options) -> str:
    """Write down what only a new container can change."""
    return f"{options.bind}:{options.port}:{options.ssh_port}"


def begin(engine: Engine, options: Options, image: str, stopped: Container | None) -> None:
    """Start the container and wait until JupyterLab answers."""
    for variable, port in (("PORT", options.port), ("SSH_PORT", options.ssh_port)):
        check_port(engine, options.bind, port, variable)
    if stopped:
        with ui.steps.step("start the container", f"{options.name}, stopped before, with all that is in it"):
            _started(engine.ask("start", options.name), options)
            wait(engine, options)
        return
    folder = container.code_folder()
    container.say_owner(engine, folder)
    gpus, said = gpu_options(engine)
    ui.say(said)
    with ui.steps.step("start the container", f"{options.name} from {image}"):
        command = run_command(engine, options, image, [*gpus, *identity_options(engine)], os.environ)
        _started(process.capture(command, timeout=300), options)
        wait(engine, options)


def run_command(engine: Engine, options: Options, image: str, more: list[str], environ: Mapping[str, str]) -> list[str]:
    """Write the command line that makes the container."""
    return engine.command(
        "run",
        "--detach",
        *("--name", options.name),
        *("--label", names.LABEL),
        *("--label", f"pytorch-cuda.settings={settings_of(options)}"),
        *("--publish", f"{options.bind}:{options.port}:{INSIDE['jupyter']}"),
        *("--publish", f"{options.bind}:{options.ssh_port}:{INSIDE['sshd']}"),
        *("--volume", f"{names.CODE}:/workspace/code"),
        *("--volume", f"{options.name}-home:/home/user"),
        *more,
        *container.by_name(environ),
        image,
    )


def check_port(engine: Engine, bind: str, port: int, variable: str) -> None:
    """Stop when another program has the port: the engine's own message is hard to read."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
            return
        except PermissionError:
            return  # a low port: the engine may bind it though the caller may not
        except OSError as error:
            seen = f"{bind}:{port}: {error.strerror}"
    holder = engine.ask("ps", "--filter", f"publish={port}", "--format", "{{.Names}}").out.split()
    raise ui.UserError(
        f"port {port} of this machine is taken",
        seen + (f"; the container {holder[0]} publishes it" if holder else ""),
        f"choose another: make run {variable}={port + 1}",
    )


def _started(answer: process.Result, options: Options) -> None:
    if answer.ok:
        return
    if "address already in use" in answer.err or "port is already allocated" in answer.err:
        do = f"choose others: make run PORT={options.port + 1} SSH_PORT={options.ssh_port + 1}"
    else:
        do = f"mend it, then: docker rm -f {options.name}; make run"
    raise ui.UserError("the container did not start", answer.last_words, do)


def wait(engine: Engine, options: Options) -> None:
    """Wait until every service that the container wrote down answers, or tell why none will."""

    def settled() -> bool:
        found = container.find(engine, options.name)
        if found is None or not found.running:
            raise _gone(engine, options, found)
        seen = services(engine, options.name)
        url = seen.get("jupyter")
        return bool(seen) and (url is None or answers(engine, options, url))

    if not process.wait_until(settled, SECONDS_TO_ANSWER, pause=0.5):
        raise ui.UserError(
            f"the container runs, but its services did not answer within {SECONDS_TO_ANSWER} s",
            last_lines(engine, options.name),
            f"make logs; then: {engine.kind} rm -f {options.name}; make run",
        )


def _gone(engine: Engine, options: Options, found: Container | None) -> ui.UserError:
    code = found.exit_code if found else "unknown"
    seen = f"exit code {code}; it said last:\n{last_lines(engine, options.name)}"
    return ui.UserError(
        "the container ended during its start", seen, f"mend it, then: {engine.kind} rm {options.name}; make run"
    )


def last_lines(engine: Engine, name: str, count: int = 8) -> str:
    """Give what the container said last."""
    logs = engine.ask("logs", "--tail", str(count), name)
    return "\n".join((logs.out + logs.err).strip().splitlines()[-count:]) or "(nothing)"


def services(engine: Engine, name: str) -> dict[str, str]:
    """Read which services the container wrote down, and the addresses they answer at inside."""
    answer = engine.ask("exec", name, "cat", f"{container.RUN_DIRECTORY}/services.json")
    try:
        listed = json.loads(answer.out)["services"]
        return {service["name"]: service.get("url", "") for service in listed}
    except (ValueError, KeyError, TypeError):
        return {}


def outside(options: Options, url: str, path: str = "") -> str:
    """Turn an address inside the container into one of this machine."""
    inner = urlsplit(url)
    host = "127.0.0.1" if options.bind == "0.0.0.0" else options.bind
    return f"{inner.scheme}://{host}:{options.port}{path or inner.path}"


def answers(engine: Engine, options: Options, url: str) -> bool:
    """Ask JupyterLab from outside; its certificate may well be self-made."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(outside(options, url), timeout=5):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code < 500
    except (OSError, ValueError):
        return False


def tell(engine: Engine, options: Options) -> None:
    """Say how to get in: only what works in this container."""
    published = _published(engine, options)
    seen = services(engine, published.name)
    if "jupyter" in seen:
        path = urlsplit(seen["jupyter"]).path[: -len("api")] + "lab"
        token = engine.ask("exec", published.name, "cat", f"{container.RUN_DIRECTORY}/token").out.strip()
        ui.say(f"JupyterLab: {outside(published, seen['jupyter'], path)}" + (f"?token={token}" if token else ""))
    remote = os.environ.get("SSH_CONNECTION", "").split()
    if remote and published.bind == "127.0.0.1" and "jupyter" in seen:
        user = os.environ.get("SUDO_USER") or os.environ.get("USER") or "USER"
        ui.say(f"  on your own computer first: ssh -L {published.port}:127.0.0.1:{published.port} {user}@{remote[2]}")
    if "sshd" in seen:
        ui.say(f"SSH:        ssh -p {published.ssh_port} user@{published.bind}")
    ui.say(f"Files in {names.CODE} are /workspace/code inside. Stop with: make stop")


def _published(engine: Engine, options: Options) -> Options:
    """Read the ports that a container really has: one that ran already may have been started with others."""
    found = container.find(engine, options.name)
    parts = found.settings.split(":") if found else []
    if len(parts) != 3:
        return options
    return Options(options.name, int(parts[1]), int(parts[2]), parts[0], options.image)


if __name__ == "__main__":
    ui.entry("run", main)
