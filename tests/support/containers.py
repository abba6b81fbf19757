"""Containers of the tests: labelled, tracked, always removed; a failed test shows their logs."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from tests.support.wait import BUDGETS, until

LABEL = "pytorch-cuda-tests"
# Its value: two runs on one machine take away their own alone.
RUN = str(os.getpid())
# What a log may not hold unless the test expects it: our own warnings, Jupyter's, and anybody's traceback.
TROUBLE = re.compile(r"pytorch-cuda: warning|^\[[WE] \d|Traceback \(most recent|\b(WARNING|ERROR|CRITICAL)\b")

# Tornado takes Jupyter's milliseconds for seconds and warns, once a server; any value that it likes better would make
# Jupyter close every kernel's connection after 30 s.
KNOWN_NOISE = r"websocket_ping_timeout \(90000\) cannot be longer"


@dataclass(frozen=True)
class Done:
    """How a program ended and what it said."""

    command: Sequence[str]
    code: int
    raw_out: bytes
    raw_err: bytes
    seconds: float

    @property
    def out(self) -> str:
        return self.raw_out.decode("utf-8", "backslashreplace")

    @property
    def err(self) -> str:
        return self.raw_err.decode("utf-8", "backslashreplace")

    def __str__(self) -> str:
        return (
            f"$ {' '.join(self.command)}\nexit {self.code} after {self.seconds:.1f} s"
            f"\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
        )

    def ok(self) -> Done:
        """Itself, when the program ended with 0; else a failure that shows all it said."""
        return self.ended(0)

    def ended(self, code: int) -> Done:
        """Itself, when the program ended with this code; else a failure that shows all it said."""
        assert self.code == code, f"wanted exit {code}\n{self}"
        return self


def call(
    *command: str,
    budget: str = "a command",
    stdin: bytes = b"",
    cwd: Optional[str] = None,
    environ: Optional[Mapping[str, str]] = None,
) -> Done:
    """Run a program on the host and collect what it says."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=BUDGETS[budget], cwd=cwd, env=environ, check=False
        )
    except subprocess.TimeoutExpired as error:
        said = f"{(error.stdout or b'')!r} {(error.stderr or b'')!r}"
        raise AssertionError(
            f"$ {' '.join(command)}\nstill running after {BUDGETS[budget]} s ({budget}); it said: {said}"
        ) from None
    return Done(command, done.returncode, done.stdout, done.stderr, time.monotonic() - begun)


@dataclass
class Tracked:
    """A container that a test started."""

    container: Any
    expect: tuple[str, ...] = ()
    quiet: bool = True
    gone: bool = False

    @property
    def id(self) -> str:
        return str(self.container.id)

    @property
    def name(self) -> str:
        return str(self.container.name)

    def inspect(self) -> dict[str, Any]:
        """The engine's description of it, as of now."""
        self.container.reload()
        return dict(self.container.attrs)

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.inspect()["State"])

    @property
    def address(self) -> str:
        """Its IPv4 address on the engine's bridge."""
        return str(self.inspect()["NetworkSettings"]["IPAddress"])

    def port(self, inside: int) -> int:
        """The port of this machine on which the port `inside` is published."""
        published = self.inspect()["NetworkSettings"]["Ports"].get(f"{inside}/tcp")
        assert published, f"{self.name} publishes no port {inside}; its log:\n{self.log()}"
        return int(published[0]["HostPort"])

    def log(self, stdout: bool = True, stderr: bool = True) -> str:
        """What it said so far."""
        return str(self.container.logs(stdout=stdout, stderr=stderr).decode("utf-8", "backslashreplace"))

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """Wait until its log has the pattern."""

        def probe() -> Optional[re.Match[str]]:
            found = re.search(pattern, self.log())
            if not found:
                assert self.state["Running"], f"{self.name} ended before it said {pattern!r}:\n{self.log()}"
            return found

        return until("a line in the log", probe, lambda: f"no {pattern!r} in:\n{self.log()}")

    def wait_for_process(self, name: str) -> None:
        """Wait until a program of this name runs inside: the start has handed over to it."""

        def probe() -> bool:
            assert self.state["Running"], f"{self.name} ended:\n{self.log()}"
            lines = [row[-1] for row in self.container.top(ps_args="-eo pid,args")["Processes"]]
            return any(name in line and "start.py" not in line for line in lines)

        until("a line in the log", probe, lambda: f"{self.container.top()}\n{self.log()}")

    def exec(self, *command: str, user: str = "", stdin: bytes = b"", budget: str = "a command") -> Done:
        """Run a program inside, as `docker exec` does."""
        options = ["--interactive"] if stdin else []
        options += ["--user", user] if user else []
        return call("docker", "exec", *options, self.id, *command, stdin=stdin, budget=budget)

    def stop(self, grace: int = 30) -> float:
        """`docker stop`; the seconds that it took. The grace only keeps a hang from lasting."""
        begun = time.monotonic()
        self.container.stop(timeout=grace)
        return time.monotonic() - begun

    def signal(self, name: str) -> None:
        """Send a signal to its first process."""
        self.container.kill(signal=name)

    def restart(self) -> None:
        """`docker restart`."""
        self.container.restart(timeout=30)

    def wait(self) -> int:
        """Wait until it ends; its exit code."""

        def probe() -> Optional[bool]:
            return not self.state["Running"] or None

        until("a container to end", probe, lambda: f"{self.name} still runs; its log:\n{self.log()}")
        return int(self.state["ExitCode"])

    def remove(self) -> None:
        """Take it away, running or not, with its unnamed volumes."""
        import docker.errors

        if not self.gone:
            self.gone = True
            with contextlib.suppress(docker.errors.NotFound):
                self.container.remove(force=True, v=True)

    def check_log(self) -> None:
        """Fail on trouble in the log that the test does not expect, and on expected trouble that is not there."""
        log = self.log()
        for pattern in self.expect:
            assert re.search(pattern, log), f"{self.name} should have said {pattern!r}; its log:\n{log}"
        known = (KNOWN_NOISE, *self.expect)
        odd = [
            line
            for line in log.splitlines()
            if TROUBLE.search(line) and not any(re.search(pattern, line) for pattern in known)
        ]
        assert not odd, f"{self.name} complained:\n" + "\n".join(odd) + f"\n\nits whole log:\n{log}"


# All that run now, for the logs that a failed test shows.
ALIVE: list[Tracked] = []


def logs_of_all() -> list[tuple[str, str]]:
    """A title and the last words of every container that is there."""
    import docker.errors

    found = []
    for tracked in ALIVE:
        with contextlib.suppress(docker.errors.APIError):
            found.append((f"log of {tracked.name}", tracked.log()[-20000:]))
    return found


@dataclass
class Containers:
    """Starts containers and takes all of them away in the end."""

    client: Any
    tracked: list[Tracked] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)

    def command(self, image: str, *command: str, options: Sequence[str] = ()) -> list[str]:
        """The `docker run` command line of a container that close() finds again."""
        name = f"{LABEL}-{uuid.uuid4().hex[:12]}"
        return ["docker", "run", "--name", name, "--label", f"{LABEL}={RUN}", *options, image, *command]

    def run(
        self,
        image: str,
        *command: str,
        options: Sequence[str] = (),
        budget: str = "a command",
        stdin: bytes = b"",
        prefix: Sequence[str] = (),
        cwd: Optional[str] = None,
    ) -> Done:
        """Run a container to its end, as a user's `docker run --rm` does."""
        line = self.command(image, *command, options=["--rm", *options])
        try:
            return call(*prefix, *line, budget=budget, stdin=stdin, cwd=cwd)
        except BaseException:
            call("docker", "rm", "--force", "--volumes", line[3])
            raise

    def start(
        self, image: str, *command: str, options: Sequence[str] = (), expect: Sequence[str] = (), quiet: bool = True
    ) -> Tracked:
        """Start a container in the background. `expect`: the complaints that its log must hold, and no others.

        `quiet=False`: do not judge the log, for a container that is broken on purpose.
        """
        line = self.command(image, *command, options=["--detach", *options])
        done = call(*line)
        if done.code:
            call("docker", "rm", "--force", "--volumes", line[3])
            raise AssertionError(f"the container did not start\n{done}")
        tracked = Tracked(self.client.containers.get(line[3]), tuple(expect), quiet)
        self.tracked.append(tracked)
        ALIVE.append(tracked)
        return tracked

    def adopt(self, name: str) -> Tracked:
        """Track a container that another program started under this name."""
        tracked = Tracked(self.client.containers.get(name), quiet=False)
        self.tracked.append(tracked)
        ALIVE.append(tracked)
        return tracked

    def volume(self) -> str:
        """A new named volume."""
        name = f"{LABEL}-{uuid.uuid4().hex[:12]}"
        self.client.volumes.create(name, labels={LABEL: RUN})
        self.volumes.append(name)
        return name

    def close(self) -> None:
        """Judge the logs, and take everything away whatever comes of it."""
        problems = []
        for tracked in self.tracked:
            try:
                if tracked.quiet and not tracked.gone:
                    tracked.check_log()
            except AssertionError as error:
                problems.append(str(error))
            finally:
                tracked.remove()
                if tracked in ALIVE:
                    ALIVE.remove(tracked)
        for name in self.volumes:
            self.client.volumes.get(name).remove(force=True)
        assert not problems, "\n".join(problems)


def remove_left_overs(client: Any) -> None:
    """Take away what an earlier run, ended by force, left behind."""
    import docker.errors

    ours = {"label": LABEL}
    for container in client.containers.list(all=True, filters=ours, ignore_removed=True):
        with contextlib.suppress(docker.errors.APIError):  # another run may be taking it away just now
            if not _is_running(container.labels[LABEL]):
                container.remove(force=True, v=True)
    for volume in client.volumes.list(filters=ours):
        with contextlib.suppress(docker.errors.APIError):
            if not _is_running(volume.attrs["Labels"][LABEL]):
                volume.remove(force=True)


def _is_running(run: str) -> bool:
    """Whether another run of the tests goes on; this process may have the number of one that is gone."""
    return run.isdigit() and run != RUN and os.path.exists(f"/proc/{run}")


def plain_environ() -> dict[str, str]:
    """The environment for the docker client: no settings of the developer's own client, which may add proxies."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("BUILDX_", "COMPOSE_"))}
