"""doctor and selftest as programs in the image: run by path, by root's interpreter, with an empty environment.

Started by a static shell (scripts/image/bin), which stays as the parent: its environment, read as data, is the
container's. Called by root (`docker exec NAME doctor`), all the rest happens as the container's user, so that
nothing which the user can write is trusted by root, and what is said is what the user would meet.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple, Optional

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from doctor import cli, files
from doctor.patient import ENVIRONMENT

# The names that the start writes down come before the image's own: PUID may have moved the user.
PASSWD = ("/run/pytorch-cuda/extrausers/passwd", "/etc/passwd")
NAME = "user"
NO_PYTHON = 127


class Account(NamedTuple):
    """The container's user."""

    uid: int
    gid: int
    home: str


def main(arguments: list[str]) -> int:
    """arguments: the program's name, then its own arguments."""
    environ = environment_of(os.getppid())
    os.chdir("/")
    if os.geteuid() == 0:
        environ.update(become(find_account()))
    if arguments[0] == "doctor":
        return cli.main(arguments[1:], environ)
    return _become_selftest(arguments[1:], environ)


def environment_of(pid: int, proc: str = "/proc") -> dict[str, str]:
    """The environment with which a process was started; of two variables of one name the first counts."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    environ: dict[str, str] = {}
    for entry in entries:
        name, equals, value = os.fsdecode(entry).partition("=")
        if name and equals:
            environ.setdefault(name, value)
    return environ


def find_account(paths: tuple[str, ...] = PASSWD) -> Optional[Account]:
    """Who `user` is in this container."""
    for path in paths:
        for line in (files.read_text(path) or "").splitlines():
            field = line.split(":")
            if len(field) == 7 and field[0] == NAME and field[2].isdigit() and field[3].isdigit():
                return Account(int(field[2]), int(field[3]), field[5])
    return None


def become(account: Optional[Account]) -> dict[str, str]:
    """Give root's rights up for good. Returns the variables that change with it."""
    if account is None or account.uid == 0:
        return {}  # a rootless engine: uid 0 is whoever called it
    try:
        os.initgroups(NAME, account.gid)
        os.setgid(account.gid)
        os.setuid(account.uid)
    except OSError:
        # --cap-drop ALL, or a user namespace without these ids: this root has no power to give up, and the user's
        # programs run as it, too.
        return {}
    os.umask(0o002)
    return {"HOME": account.home, "USER": NAME, "LOGNAME": NAME}


def _become_selftest(arguments: list[str], environ: dict[str, str]) -> int:
    python = f"{ENVIRONMENT}/bin/python"
    try:
        os.execve(python, [python, "-m", "selftest", *arguments], environ)
    except OSError as error:
        print(f"selftest: {python}: {error.strerror}", file=sys.stderr)
        return NO_PYTHON


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
