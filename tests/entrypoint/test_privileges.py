"""Becoming the user."""

from __future__ import annotations

import errno
import os
import pty
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from entrypoint import privileges
from entrypoint.errors import StartError
from entrypoint.identity import Identity

SELF = Identity(os.geteuid(), os.getegid(), (), "user", "/home/user", drop=False, profile="user")
USER = Identity(4321, 20, (0, 44), "user", "/home/user", drop=True, profile="root")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Kernel:
    """Takes the place of the calls that only root may make."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.ids: tuple[int, int] = (USER.uid, USER.gid)
        self.groups_error: int = 0
        patch.setattr(os, "setgroups", self._setgroups)
        patch.setattr(os, "setresgid", lambda *ids: self.calls.append(("gid", ids)))
        patch.setattr(os, "setresuid", lambda *ids: self.calls.append(("uid", ids)))
        patch.setattr(os, "getresuid", lambda: (self.ids[0],) * 3)
        patch.setattr(os, "getresgid", lambda: (self.ids[1],) * 3)
        patch.setattr(os, "umask", lambda mask: self.calls.append(("umask", mask)))

    def _setgroups(self, groups: list[int]) -> None:
        if self.groups_error:
            raise OSError(self.groups_error, os.strerror(self.groups_error))
        self.calls.append(("groups", groups))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_groups_are_set_before_the_group_and_the_user_last(kernel: Kernel) -> None:
    privileges.become(USER)
    assert kernel.calls == [
        ("umask", 0o002),
        ("groups", [0, 20, 44]),
        ("gid", (20, 20, 20)),
        ("uid", (4321, 4321, 4321)),
    ]


def test_who_need_not_change_gets_the_umask_only(kernel: Kernel) -> None:
    privileges.become(SELF)
    assert kernel.calls == [("umask", 0o002)]


@pytest.mark.parametrize("ids", [(0, 20), (4321, 0)])
def test_ids_that_did_not_take_stop_the_start(kernel: Kernel, ids: tuple[int, int]) -> None:
    kernel.ids = ids
    with pytest.raises(StartError) as stop:
        privileges.become(USER)
    assert "4321:20" in stop.value.seen


def test_groups_may_be_refused_inside_a_user_namespace_alone(kernel: Kernel) -> None:
    kernel.groups_error = errno.EPERM
    privileges.become(replace(USER, mapped=True))
    assert ("uid", (4321, 4321, 4321)) in kernel.calls
    with pytest.raises(PermissionError):
        privileges.become(USER)


def _ids() -> list[Any]:
    os.umask(mask := os.umask(0))
    return [os.getresuid(), os.getresgid(), sorted(os.getgroups()), mask]


@needs_root
def test_a_function_runs_as_the_user_and_this_process_stays_root() -> None:
    assert privileges.run_as(USER, _ids) == [[4321] * 3, [20] * 3, [0, 20, 44], 0o002]
    assert os.getresuid() == (0, 0, 0)


@needs_root
def test_the_user_cannot_become_root_again() -> None:
    with pytest.raises(PermissionError):
        privileges.run_as(USER, lambda: os.setuid(0))


@needs_root
def test_sudo_will_work_later() -> None:
    def no_new_privileges() -> str:
        return Path("/proc/self/status").read_text().split("NoNewPrivs:")[1].split()[0]

    assert privileges.run_as(USER, no_new_privileges) == no_new_privileges()


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Identity:
    """An identity that makes run_as fork, whoever runs the tests."""
    monkeypatch.setattr(privileges, "become", lambda identity: None)
    return replace(SELF, drop=True)


def test_a_result_comes_back_from_the_child(forked: Identity) -> None:
    assert privileges.run_as(forked, lambda: {"pid": os.getpid(), "text": "ü"})["text"] == "ü"
    assert privileges.run_as(forked, os.getpid) != os.getpid()
    assert privileges.run_as(forked, lambda: None) is None


def test_a_large_result_comes_back(forked: Identity) -> None:
    assert len(privileges.run_as(forked, lambda: "x" * 1_000_000)) == 1_000_000


def _raise(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


def test_an_oserror_comes_back_with_its_number_and_file(forked: Identity) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        privileges.run_as(forked, _raise(FileNotFoundError(errno.ENOENT, "nothing", b"/x\xff")))
    assert (caught.value.strerror, caught.value.filename) == ("nothing", "/x\udcff")


def test_a_start_error_comes_back_whole(forked: Identity) -> None:
    with pytest.raises(StartError) as caught:
        privileges.run_as(forked, _raise(StartError("a", "b", "c", 3)))
    assert (caught.value.what, caught.value.seen, caught.value.do, caught.value.code) == ("a", "b", "c", 3)


def test_a_mistake_of_ours_is_not_taken_for_a_result(forked: Identity) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        privileges.run_as(forked, lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="without an answer"):
        privileges.run_as(forked, lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_the_child_leaves_no_zombie(forked: Identity) -> None:
    privileges.run_as(forked, lambda: None)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_terminals_and_pipes_become_the_users_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda *what: given.append(what))
    master, slave = pty.openpty()
    reader, writer = os.pipe()
    regular, null = os.open(tmp_path / "log", os.O_CREAT | os.O_RDWR), os.open(os.devnull, os.O_RDWR)
    saved = [os.dup(fd) for fd in (0, 1, 2)]
    try:
        for fds in ((slave, writer, regular), (null, null, null)):
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            privileges.give_stdio(USER)
            privileges.give_stdio(SELF)
    finally:
        for target, fd in enumerate(saved):
            os.dup2(fd, target)
        for fd in (*saved, master, slave, reader, writer, regular, null):
            os.close(fd)
    assert given == [(0, 4321, -1), (1, 4321, -1)]


def test_a_program_gets_the_signals_that_python_changed() -> None:
    ignored = (signal.SIGPIPE, signal.SIGXFSZ)
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        privileges.reset_signals()
        right = all(signal.getsignal(number) == signal.SIG_DFL for number in (*ignored, signal.SIGINT))
        os._exit(0 if right and not signal.pthread_sigmask(signal.SIG_BLOCK, set()) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
