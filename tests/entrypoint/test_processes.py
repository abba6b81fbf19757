"""Which processes lie below the supervisor, and whose turn it is to end."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from entrypoint.processes import Process, descendants, next_to_ask, parse_stat, read_process

TOP = 7
TTY = 34816


def process(
    pid: int,
    parent: int,
    comm: str,
    tty: int = 0,
    session: int = 1,
    group: Optional[int] = None,
    state: str = "S",
) -> Process:
    return Process(pid, parent, pid if group is None else group, session, tty, state, comm, started=pid)


def turn(*processes: Process) -> list[int]:
    return [one.pid for one in next_to_ask(TOP, {one.pid: one for one in processes})]


LAB = process(10, TOP, "jupyter-lab", session=10)
KERNEL = process(11, 10, "python", session=11)
SSHD = process(20, TOP, "sshd", session=20)
MONITOR = process(21, 20, "sshd", session=20)
USER_SSHD = process(22, 21, "sshd-session", session=20)
LOGIN = process(23, 22, "bash", TTY, session=23)
TRAIN = process(24, 23, "python", TTY, session=23)
WORKER = process(25, 24, "python", TTY, session=23, group=24)


def test_a_service_ends_its_own_helpers() -> None:
    assert turn(LAB, KERNEL) == [10]


def test_an_orphan_is_asked_beside_the_services() -> None:
    assert turn(LAB, KERNEL, process(30, TOP, "node")) == [10, 30]


def test_a_trainer_is_asked_before_its_workers_and_its_session() -> None:
    assert turn(SSHD, MONITOR, USER_SSHD, LOGIN, TRAIN, WORKER) == [24]


def test_a_shell_at_its_prompt_is_asked() -> None:
    assert turn(SSHD, MONITOR, USER_SSHD, LOGIN) == [23]


def test_an_ended_session_frees_sshd() -> None:
    assert turn(SSHD, MONITOR, USER_SSHD) == [20]


def test_a_command_without_a_terminal_holds_its_session_too() -> None:
    command = process(23, 22, "bash", session=23)
    assert turn(SSHD, MONITOR, USER_SSHD, command, process(24, 23, "python", session=23, group=23)) == [23]


def test_a_terminal_in_jupyter_is_emptied_before_jupyter_ends() -> None:
    shell = process(12, 10, "bash", TTY, session=12)
    assert turn(LAB, KERNEL, shell) == [12]
    assert turn(LAB, KERNEL, shell, process(13, 12, "python", TTY, session=12)) == [13]


def test_every_pane_of_a_terminal_multiplexer_is_emptied_first() -> None:
    server = process(40, TOP, "tmux: server", session=40)
    panes = process(41, 40, "bash", TTY + 1, session=41), process(42, 40, "zsh", TTY + 2, session=42)
    assert turn(server, *panes, process(43, 42, "python", TTY + 2, session=42)) == [41, 43]


def test_a_program_that_leads_the_terminal_is_asked_before_its_workers() -> None:
    leader = process(23, 22, "python", TTY, session=23)
    assert turn(SSHD, MONITOR, USER_SSHD, leader, process(24, 23, "python", TTY, session=23, group=23)) == [23]


def test_a_command_that_leads_the_terminal_waits_for_its_program() -> None:
    job = process(24, 23, "python", TTY, session=23, group=23)
    assert turn(SSHD, MONITOR, USER_SSHD, LOGIN, job) == [24]


def test_a_nested_interactive_shell_waits_for_its_jobs() -> None:
    nested = process(24, 23, "bash", TTY, session=23)
    assert turn(LOGIN_ALONE, nested) == [24]
    assert turn(LOGIN_ALONE, nested, process(25, 24, "python", TTY, session=23)) == [25]


def test_a_script_ends_before_it_can_go_on_to_its_next_line() -> None:
    script = process(24, 23, "bash", TTY, session=23)
    assert turn(LOGIN_ALONE, script, process(25, 24, "python", TTY, session=23, group=24)) == [24]


LOGIN_ALONE = process(23, TOP, "bash", TTY, session=23)


def test_every_job_of_a_shell_is_asked() -> None:
    jobs = [process(pid, 23, "python", TTY, session=23) for pid in (24, 25, 26)]
    assert turn(LOGIN_ALONE, *jobs) == [24, 25, 26]


def test_a_script_with_a_trap_is_asked_beside_its_job_and_one_without_waits_for_it() -> None:
    """Without a trap its end would hang up on the trainer; with one it must hear of the stop in time."""
    script = process(23, TOP, "bash", TTY, session=23)
    assert turn(script, TRAIN) == [24]
    assert turn(replace(script, catches_term=True), TRAIN) == [23, 24]


def test_a_strange_name_does_not_confuse_the_reader() -> None:
    tail = "S 5 42 43 34816 42 4194304 " + " ".join(str(number) for number in range(12)) + " 777" + " 0" * 12
    found = parse_stat(f"42 (a) S 1 (b c) {tail}")
    assert found == Process(42, 5, 42, 43, 34816, "S", "a) S 1 (b c", started=777)


@pytest.mark.parametrize(
    ("shell", "interactive"),
    [
        (["bash", "--norc", "-i"], True),
        (["sh", "-i"], True),
        (["bash", "-c", "sleep 30; true"], False),
        (["bash", "-c", "trap 'exit 3' TERM; sleep 30; true"], False),
    ],
)
def test_a_shell_at_a_prompt_is_told_from_one_that_runs_a_script(shell: list[str], interactive: bool) -> None:
    """Only the first gets a HUP: a script's trap may be saving something."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(shell[0], shell)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            seen = read_process(pid)
            if seen and seen.comm == shell[0] and seen.is_interactive == interactive and _is_settled(pid, shell):
                return
            time.sleep(0.05)
        raise AssertionError(str(seen))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _is_settled(pid: int, shell: list[str]) -> bool:
    """A script has come to its sleep; a prompt needs no waiting for."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return shell[-1] == "-i" or bool(children)


def test_this_process_reads_itself() -> None:
    me = read_process(os.getpid())
    assert me and (me.parent, me.group, me.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert read_process(2**22 + 1) is None


def test_descendants_are_found_through_parents_and_strangers_are_not(tmp_path: Path) -> None:
    parents = {TOP: 1, 10: TOP, 11: 10, 12: 11, 50: 1, 51: 50, 60: TOP}
    for pid, parent in parents.items():
        (tmp_path / str(pid)).mkdir()
        state = "Z" if pid == 60 else "S"
        numbers = " ".join(["0"] * 17)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (x) {state} {parent} {numbers} 5{' 0' * 12}")
    (tmp_path / "70").mkdir()
    (tmp_path / "self").mkdir()
    assert set(descendants(TOP, str(tmp_path))) == {10, 11, 12}


def test_a_real_child_is_a_descendant_until_it_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in descendants(os.getpid())
        assert os.getppid() not in descendants(os.getpid())
        child.kill()
    assert child.pid not in descendants(os.getpid())
