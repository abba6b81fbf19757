"""The processes below the supervisor, and in which order a stop asks them to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

# Interactive shells ignore TERM and end on HUP.
SHELLS = frozenset({"sh", "bash", "zsh", "fish", "dash", "ksh"})


@dataclass(frozen=True)
class Process:
    """What /proc/PID/stat says of a process."""

    pid: int
    parent: int
    group: int
    session: int
    tty: int
    state: str
    comm: str
    started: int
    ignores_term: bool = False
    catches_term: bool = False

    @property
    def leads_terminal(self) -> bool:
        """Whether the end of this process hangs up on all others on its terminal."""
        return self.tty != 0 and self.session == self.pid

    @property
    def is_terminal_shell(self) -> bool:
        """A shell on a terminal, at a prompt or running a script."""
        return self.tty != 0 and self.comm in SHELLS

    @property
    def is_interactive(self) -> bool:
        """A shell at a prompt: TERM means nothing to it, whereas a script's trap is to have its time."""
        return self.is_terminal_shell and self.ignores_term

    @property
    def has_trap(self) -> bool:
        """A script that wants to do something before it ends."""
        return self.is_terminal_shell and self.catches_term

    @property
    def is_sshd(self) -> bool:
        """sshd, or one of the programs that newer versions split it into."""
        return self.comm.startswith("sshd")


def read_process(pid: int, proc: str = "/proc") -> Optional[Process]:
    """One process; None when it is gone."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            return parse_stat(file.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None


def parse_stat(text: str) -> Process:
    """A process's name may hold blanks and brackets: it ends at the last bracket."""
    head, _, tail = text.rpartition(")")
    pid, _, comm = head.partition(" (")
    field = tail.split()
    return Process(
        pid=int(pid),
        parent=int(field[1]),
        group=int(field[2]),
        session=int(field[3]),
        tty=int(field[4]),
        state=field[0],
        comm=comm,
        started=int(field[19]),
        ignores_term=_has_term(field[30]),
        catches_term=_has_term(field[31]),
    )


def _has_term(signals: str) -> bool:
    return bool(int(signals) >> (signal.SIGTERM - 1) & 1)


def descendants(top: int, proc: str = "/proc") -> dict[int, Process]:
    """Every living process below `top`; found by parents, never by user: /proc may show a whole host."""
    everyone = [read_process(int(name), proc) for name in os.listdir(proc) if name.isdigit()]
    below = _children({one.pid: one for one in everyone if one})
    found: dict[int, Process] = {}
    waiting = [top]
    while waiting:
        for child in below.get(waiting.pop(), ()):
            found[child.pid] = child
            waiting.append(child.pid)
    return {pid: one for pid, one in found.items() if one.state not in "ZX"}


def next_to_ask(top: int, tree: Mapping[int, Process]) -> list[Process]:
    """Those whose turn it is to end.

    From the top down, because a program ends its own helpers best: a trainer whose workers are shot
    saves nothing. But whoever holds a terminal or an ssh session waits until what runs in it has
    ended: a closed terminal kills (HUP, SIGPIPE) what is still saving its checkpoint.
    """
    below = _children(tree)
    return [one for child in below.get(top, ()) for one in _turn(child, below)]


def _turn(one: Process, below: Mapping[int, list[Process]]) -> Iterator[Process]:
    children = below.get(one.pid, [])
    sessions = [child for child in children if _holds_session(child, one, below)]
    waits_for = sessions or (children if _waits_for_jobs(one, children) else [])
    # A shell comes to its trap only when the program that it waits for has ended: both are asked.
    if not waits_for or one.has_trap:
        yield one
    for child in waits_for:
        yield from _turn(child, below)


def _holds_session(one: Process, parent: Process, below: Mapping[int, list[Process]]) -> bool:
    if one.leads_terminal or (parent.is_sshd and not one.is_sshd):
        return True
    return any(_holds_session(child, one, below) for child in below.get(one.pid, ()))


def _waits_for_jobs(one: Process, children: list[Process]) -> bool:
    """An interactive shell puts each job into a process group of its own; a script doesn't."""
    if not one.is_terminal_shell:
        return False
    return bool(children) and (one.leads_terminal or any(child.group != one.group for child in children))


def _children(tree: Mapping[int, Process]) -> dict[int, list[Process]]:
    below: dict[int, list[Process]] = {}
    for one in tree.values():
        below.setdefault(one.parent, []).append(one)
    return below
