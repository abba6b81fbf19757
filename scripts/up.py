"""`make up`: start the service of docker-compose.yml with what this machine has, and say what was chosen."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scripts import compose, container, keys, names, process, run, ui, ways_in
from scripts.compose import Lab
from scripts.engine import Engine, gpu_options, identity_options


def main() -> int:
    """Choose files, image and ids; start; wait until the services answer; say how to get in."""
    compose.say_line_ends()
    engine = compose.find_docker()
    environ = {**os.environ, **fill_in(engine, {*os.environ, *(name for name, _ in compose.assignments())})}
    gpus, said = gpu_options(engine)
    used = compose.files(with_gpu=bool(gpus))
    lab = compose.read(engine, used, environ)
    ui.say(said)
    ui.say(f"Files: {', '.join(file.name for file in used)}. Image: {lab.image}")
    refuse_another(engine, lab)
    container.say_owner(engine, container.code_folder())
    start(engine, used, lab, environ)
    ui.steps.summary()
    ways_in.tell(engine, lab.container, lab.published)
    return 0


def fill_in(engine: Engine, given: Iterable[str]) -> dict[str, str]:
    """Give what neither the caller nor .env set: the image at hand, the caller's ids and public keys."""
    known = {name: os.environ.get(name, "") for name in given}
    ours = {} if "IMAGE" in known else {"IMAGE": run.ensure_image()[1]}
    if not {"PUID", "PGID"} & set(known):
        pairs = [option.split("=", 1) for option in identity_options(engine) if option != "-e"]
        ours.update({name: value for name, value in pairs})
    return {**ours, **keys.to_pass(known)}


def refuse_another(engine: Engine, lab: Lab) -> None:
    """Stop where the name or a port is taken by something that compose did not start."""
    answer = engine.ask(
        "container", "inspect", "--format", f'{{{{index .Config.Labels "{compose.PROJECT_LABEL}"}}}}', lab.container
    )
    if not answer.ok:
        _check_ports(engine, lab)
    elif answer.out.strip() != lab.project:
        raise ui.UserError(
            f"there is a container {lab.container} already, and compose did not start it",
            f"it was started by {'make run' if not answer.out.strip() else answer.out.strip()}",
            f"make up NAME={lab.container}-2 PORT={lab.published.port + 1} SSH_PORT={lab.published.ssh_port + 1}\n"
            f"or, when nothing in the other is needed: make stop; {engine.kind} rm {lab.container}",
        )


def _check_ports(engine: Engine, lab: Lab) -> None:
    try:
        run.check_ports(engine, lab.published)
    except ui.UserError as error:
        error.do = error.do.replace("make run", "make up")
        raise


def start(engine: Engine, used: Sequence[Path], lab: Lab, environ: Mapping[str, str]) -> None:
    """Start it, and wait until the services answer."""
    with ui.steps.step("start the service", f"{lab.container}, by docker compose"):
        up = compose.command(engine, used, "up", "--detach", "--quiet-pull")
        done = process.stream(up, names.LOGS / "compose-up.log", lambda line: None, environ)
        if not done.ok:
            raise ui.UserError(
                "compose could not start the service", done.last_words, "mend it, and run the same command again"
            )
        run.wait(engine, lab.container, lab.published)


if __name__ == "__main__":
    ui.entry("up", main)
