"""What happens when the container starts, from top to bottom."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from entrypoint.command import Plan, plan_command
from entrypoint.environment import read_container_environment
from entrypoint.errors import StartError
from entrypoint.gpu import require_gpu
from entrypoint.log import fail, say, warn
from entrypoint.machine import WORKSPACE
from entrypoint.privileges import become, give_stdio, run_as
from entrypoint.probes import forget_probes, record_starting
from entrypoint.program import NOT_FOUND, become_program
from entrypoint.settings import Settings
from entrypoint.tuning import problems, raise_open_files
from entrypoint.user import User, set_up_user

STOPPED_BY_CTRL_C = 130
OUR_MISTAKE = 70


def main(arguments: Sequence[str]) -> int:
    """Start what the arguments ask for. Returns the container's exit status, unless a program takes over."""
    try:
        return _start(arguments)
    except StartError as error:
        fail(error)
        return error.code
    except KeyboardInterrupt:
        return STOPPED_BY_CTRL_C
    except Exception as error:  # a traceback would help nobody who starts a container
        fail(_our_mistake(error))
        return OUR_MISTAKE


def _start(arguments: Sequence[str]) -> int:
    """The start as a table of contents."""
    cwd = _leave_folder()
    container = read_container_environment(os.getppid())
    plan = plan_command(arguments, container)
    if plan.kind in ("help", "version"):
        return _print_about_the_image(plan.kind)
    settings = Settings.read(container, plan.settings)
    _refuse_what_cannot_start(plan, settings)
    user = set_up_user(plan, settings, container)
    raise_open_files()
    if plan.kind == "exec":
        _run_program(plan, user, cwd)
    return _run_services(plan, settings, user)


def _leave_folder() -> int:
    """Keep the folder the container was started in, for the user's program; root works in / alone."""
    try:
        cwd = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        cwd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir("/")
    return cwd


def _print_about_the_image(kind: str) -> int:
    from entrypoint.usage import help_text, version_text

    sys.stdout.write(help_text() if kind == "help" else version_text())
    sys.stdout.flush()
    return 0


def _refuse_what_cannot_start(plan: Plan, settings: Settings) -> None:
    """Stop before anything is set up, while the message is still the last line on the screen."""
    for note in settings.notes:
        say(note)
    if plan.kind == "services":
        from entrypoint.services import refuse_missing

        refuse_missing(plan.word)
    elif plan.ours:
        _refuse_a_missing_program(plan)
    if "REQUIRE_GPU" in plan.settings:
        require_gpu(settings["REQUIRE_GPU"])


def _refuse_a_missing_program(plan: Plan) -> None:
    if not os.path.exists(plan.argv[0]):
        raise StartError(
            f"this image has no {plan.word}",
            f"{plan.argv[0]} is missing",
            "docker run IMAGE --version shows what the image is; the full image has it",
            NOT_FOUND,
        )


def _run_program(plan: Plan, user: User, cwd: int) -> NoReturn:
    """Become the user's program, in the folder in which the container was started."""
    forget_probes(user.rundir)
    give_stdio(user.identity)
    _enter(cwd)
    become(user.identity)
    become_program(plan.argv, user.environ)


def _enter(cwd: int) -> None:
    """Before becoming the user: the engine, too, enters the folder first and drops rights then."""
    try:
        os.fchdir(cwd)
    except OSError as error:
        warn(f"the working folder cannot be entered ({error.strerror}), so the command starts in /")


def _run_services(plan: Plan, settings: Settings, user: User) -> int:
    # What only services need costs a tenth of a second to import, which `docker run IMAGE true` is spared.
    from entrypoint.hooks import find_hooks, run_hooks
    from entrypoint.services import plan_services, refuse_early
    from entrypoint.supervise import supervise

    refuse_early(plan.word, settings, user)
    record_starting(user.rundir)
    give_stdio(user.identity)
    run_as(user.identity, lambda: run_hooks(find_hooks(), user.environ, WORKSPACE))
    for line in run_as(user.identity, lambda: problems(user.environ)):
        say(line)
    return supervise(plan_services(plan, settings, user))


def _our_mistake(error: Exception) -> StartError:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "unknown place"
    return StartError(
        "the entrypoint failed in a way that it did not foresee",
        f"{type(error).__name__}: {error} ({where})",
        "please report these three lines together with the docker run command",
        OUR_MISTAKE,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
