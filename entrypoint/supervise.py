"""Runs the services until one of them ends or the container is asked to stop, and then stops all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Optional

from entrypoint import log
from entrypoint.errors import StartError
from entrypoint.identity import Identity
from entrypoint.privileges import become, reset_signals, run_as
from entrypoint.processes import Process, descendants, next_to_ask, read_process

_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HURRY = (signal.SIGTERM, signal.SIGINT)
_WATCHED = {*_ASKED, signal.SIGCHLD}

_PR_SET_CHILD_SUBREAPER = 36
_KILLED = 128 + signal.SIGKILL
_TICK = 0.05
_LAST_WAIT = 2.0


@dataclass(frozen=True)
class Service:
    """A program that the container lives for. Without an identity it stays root."""

    name: str
    argv: list[str]
    environ: Mapping[bytes, bytes]
    cwd: str
    identity: Optional[Identity]


def supervise(services: list[Service], grace: float = 8.0) -> int:
    """Run the services; returns the container's exit code: 0 after a stop that was asked for."""
    _become_subreaper()
    # Blocked before anything is started, so that no signal is lost; taken by sigtimedwait alone.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    supervisor = _Supervisor(grace, {int(number) for number in mask})
    try:
        return supervisor.run(services)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Supervisor:
    def __init__(self, grace: float, mask: set[int]) -> None:
        self._grace = grace
        self._mask = mask
        self._running: dict[int, Service] = {}
        self._asked: set[tuple[int, int]] = set()
        self._identities: list[Identity] = []
        self._refused = False
        # No child is left; as orphans are adopted, nothing below is. A walk through /proc can miss one.
        self._alone = False

    def run(self, services: list[Service]) -> int:
        try:
            for service in services:
                self._running[_start(service, self._mask)] = service
                if service.identity and service.identity.drop:
                    self._identities.append(service.identity)
            failure = self._wait()
        except StartError:
            self._stop()
            raise
        if failure:
            log.fail(failure)
        killed = self._stop()
        return failure.code if failure else _KILLED if killed else 0

    def _wait(self) -> Optional[StartError]:
        """Wait for the end of a service, which is a failure, or for the signal to stop, which is none."""
        while True:
            if signal.sigwait(_WATCHED) in _ASKED:
                return None
            failure = self._reap()
            if failure:
                return failure

    def _reap(self) -> Optional[StartError]:
        """Take the ended children, adopted orphans among them; the first service decides."""
        failure = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._alone = True
                return failure
            if pid == 0:
                return failure
            service = self._running.pop(pid, None)
            if service and not failure:
                failure = _explain(service, os.waitstatus_to_exitcode(status))

    def _stop(self) -> bool:
        """Ask all to end, in order for half of the time, then at once; kill the rest. True if it had to."""
        begin = time.monotonic()
        hurried = False
        while not hurried and time.monotonic() < begin + self._grace:
            self._reap()
            if self._alone:
                return False
            tree = descendants(os.getpid())
            in_order = time.monotonic() < begin + self._grace / 2
            for process in next_to_ask(os.getpid(), tree) if in_order else tree.values():
                self._ask(process)
            hurried = self._pause() in _HURRY
        return self._kill(hurried)

    def _ask(self, process: Process) -> None:
        """TERM, once; HUP for a shell at a prompt; and a stopped one must run to hear it."""
        key = (process.pid, process.started)
        if key in self._asked:
            return
        self._asked.add(key)
        self._send(process, signal.SIGTERM)
        if process.is_interactive:
            self._send(process, signal.SIGHUP)
        if process.state in "Tt":
            self._send(process, signal.SIGCONT)

    def _kill(self, hurried: bool) -> bool:
        names: set[str] = set()
        deadline = time.monotonic() + _LAST_WAIT
        while time.monotonic() < deadline:
            self._reap()
            if self._alone:
                break
            tree = descendants(os.getpid())
            names.update(process.comm for process in tree.values())
            for process in tree.values():
                self._send(process, signal.SIGKILL)
            self._pause()
        if names:
            why = "a second signal came" if hurried else f"still there {self._grace:g} s after the stop began"
            log.warn(f"killed, {why}: {', '.join(sorted(names))}")
        return bool(names)

    def _pause(self) -> Optional[int]:
        """Wait a moment; a child's end or a signal wakes it."""
        info = signal.sigtimedwait(_WATCHED, _TICK)
        return info.si_signo if info else None

    def _send(self, process: Process, number: int) -> None:
        now = read_process(process.pid)
        if now is None or now.started != process.started:
            return  # the number may be a stranger's by now
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            self._send_as_user(process, number)

    def _send_as_user(self, process: Process, number: int) -> None:
        """Root without CAP_KILL may not signal another uid, but the user may."""
        for identity in self._identities:
            try:
                run_as(identity, lambda: os.kill(process.pid, number))
                return
            except ProcessLookupError:
                return
            except OSError:
                continue
        if not self._refused:
            self._refused = True
            log.warn(f"cannot stop {process.comm}: root has no KILL capability here. Start with --cap-add KILL")


def _become_subreaper() -> None:
    """Orphans become children of this process, so that none is lost; tini alone would take them away."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        error = os.strerror(ctypes.get_errno())
        log.warn(f"programs left behind in the background cannot be stopped cleanly (subreaper: {error})")


def _start(service: Service, mask: set[int]) -> int:
    """Start it in a session of its own; an error before its first instruction is a StartError."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _execute(service, mask, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        problem = answer.read().decode("utf-8", "replace")
    if problem:
        os.waitpid(pid, 0)
        raise StartError(
            f"{service.name} could not be started",
            problem,
            f"docker run IMAGE {service.argv[0]} --version   shows whether the program itself works",
        )
    return pid


def _execute(service: Service, mask: set[int], writer: int) -> NoReturn:
    """The child's part. The pipe closes by itself when the program takes over."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        if service.identity:
            become(service.identity)
        os.chdir(service.cwd)
        reset_signals(mask)
        os.execve(service.argv[0], service.argv, dict(service.environ))
    except BaseException as error:
        os.write(writer, _describe(error).encode("utf-8", "replace")[:4000])
    finally:
        os._exit(127)


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _explain(service: Service, code: int) -> StartError:
    if code < 0:
        how = f"was ended by {_signal_name(-code)}"
        do = "docker inspect -f '{{.State.OOMKilled}}' CONTAINER   tells whether memory ran out"
    else:
        how = f"ended with exit status {code}"
        do = "read its last lines above, or: docker logs CONTAINER"
    return StartError(
        f"{service.name} {how}",
        f"{service.argv[0]} ended without being asked; the container ends with it",
        do,
        code=128 - code if code < 0 else code or 1,
    )


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
