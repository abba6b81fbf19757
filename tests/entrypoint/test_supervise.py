"""The supervisor with real processes: what it starts, what it stops, and what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from entrypoint import log
from entrypoint import supervise as module
from entrypoint.errors import StartError
from entrypoint.identity import Identity
from entrypoint.processes import Process
from entrypoint.supervise import Service

ROOM = Path(__file__).resolve().parents[2]
SHELL = "/bin/bash"

# The supervisor runs in a process of its own: it takes signals, adopts orphans and reaps children.
DRIVER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from entrypoint import processes
from entrypoint.errors import StartError
from entrypoint.supervise import Service, supervise
plan = json.loads(sys.argv[2])
services = [Service(name, argv, {b"PATH": os.environb[b"PATH"], b"ONLY": b"\\xff"}, plan["cwd"], None)
            for name, argv in plan["services"]]
try:
    code = supervise(services, plan["grace"])
except StartError as error:
    print(error, file=sys.stderr)
    code = error.code
left = processes.descendants(os.getpid())
try:
    os.waitpid(-1, os.WNOHANG)
    left = left or "a child that is not reaped"
except ChildProcessError:
    pass
print("left:", left, file=sys.stderr)
sys.exit(code)
"""


class Run:
    """One supervisor under test."""

    def __init__(self, folder: Path, services: list[tuple[str, list[str]]], grace: float) -> None:
        self.folder = folder
        plan = {"services": services, "cwd": str(folder), "grace": grace}
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(ROOM), json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.seconds = 0.0
        self.err = ""
        self.out = ""

    def signal(self, number: int) -> Run:
        self.process.send_signal(number)
        return self

    def end(self, timeout: float = 10) -> int:
        begin = time.monotonic()
        self.out, self.err = self.process.communicate(timeout=timeout)
        self.seconds = time.monotonic() - begin
        assert "left: {}" in self.err, self.err
        return self.process.returncode

    def wait_for(self, name: str) -> str:
        return wait_until(lambda: read(self.folder / name), f"{name} was not written")


def read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def wait_until(true: Callable[[], Any], message: str, seconds: float = 8) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := true():
            return value
        time.sleep(0.01)
    raise AssertionError(message)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def run(tmp_path: Path) -> Any:
    runs: list[Run] = []

    def start(*scripts: str, grace: float = 8.0, python: Optional[str] = None) -> Run:
        """Start bash scripts as services; `touch ready` in the last one means that all is set."""
        services = [(f"service{number}", [SHELL, "-c", script]) for number, script in enumerate(scripts)]
        if python:
            services.append(("python", [sys.executable, "-c", python]))
        runs.append(Run(tmp_path, services, grace))
        return runs[-1]

    yield start
    for one in runs:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.communicate()


IDLE = "touch idle; exec sleep 60"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_that_was_asked_for_is_clean_and_quick(run: Any, number: int) -> None:
    one = run("echo ready > ready; exec sleep 60", IDLE)
    one.wait_for("ready")
    wait_until((one.folder / "idle").exists, "the second service did not start")
    assert one.signal(number).end() == 0
    assert one.seconds < 2
    assert "killed" not in one.err


def test_a_service_starts_as_it_should(run: Any) -> None:
    script = (
        "import os, signal\n"
        "mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "facts = [os.getsid(0) == os.getpid(), os.readlink('/proc/self/fd/0'), sorted(mask), os.getcwd(),\n"
        "         sorted(k for k in os.environ if k != 'LC_CTYPE'), os.environb[b'ONLY'] == b'\\xff',\n"
        "         sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:4]]\n"
        "print(facts, flush=True)\n"
        "os.kill(os.getppid(), signal.SIGTERM); signal.pause()\n"
    )
    one = run(python=script)
    assert one.end() == 0
    expected = [True, "/dev/null", [], str(one.folder), ["ONLY", "PATH"], True, [0, 1, 2, 3]]
    assert one.out.strip() == repr(expected)


def test_a_service_may_be_told_of_a_closed_pipe(run: Any) -> None:
    one = run("grep SigIgn /proc/self/status > ready; exec sleep 60")
    ignored = int(one.wait_for("ready").split()[1], 16)
    one.signal(signal.SIGTERM).end()
    assert not ignored & 1 << (signal.SIGPIPE - 1)


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("exit 3", 3, "service1 ended with exit status 3"),
        ("exit 0", 1, "service1 ended with exit status 0"),
        ("kill -9 $$", 137, "service1 was ended by SIGKILL"),
    ],
)
def test_a_service_that_ends_by_itself_ends_the_container(run: Any, script: str, code: int, words: str) -> None:
    one = run(f"echo $$ > pid; {IDLE}", f"until [ -e idle ]; do sleep 0.01; done; {script}")
    assert one.end() == code
    assert words in one.err
    assert "docker logs" in one.err or "docker inspect" in one.err
    assert not is_alive(one.wait_for("pid").strip())


def test_only_the_first_death_is_a_reason(run: Any) -> None:
    one = run("exit 5", "trap 'exit 6' TERM; while :; do sleep 0.05; done")
    assert one.end() == 5
    assert "service0" in one.err and "service1 ended" not in one.err


def test_a_program_that_is_missing_stops_what_was_started(run: Any, tmp_path: Path) -> None:
    one = Run(tmp_path, [("idle", [SHELL, "-c", IDLE]), ("lab", ["/no/such/lab"])], 8.0)
    assert one.end() == 64
    assert "lab could not be started" in one.err
    assert "seen: /no/such/lab: No such file or directory" in one.err


def test_everything_below_a_service_is_stopped(run: Any) -> None:
    one = run("sleep 60 & echo $! > child; (sleep 61 & echo $! > grandchild); echo $$ > ready; wait")
    pids = [one.wait_for(name).strip() for name in ("child", "grandchild", "ready")]
    assert one.signal(signal.SIGTERM).end() == 0
    assert one.seconds < 2
    assert not [pid for pid in pids if is_alive(pid)]


def test_a_daemon_that_left_its_service_is_stopped_and_saves(run: Any) -> None:
    daemon = "trap 'echo saved > saved; exit 0' TERM; echo $$ > ready; while :; do sleep 0.05; done"
    one = run(f"setsid {SHELL} -c \"{SHELL} -c '{daemon_quoted(daemon)}' &\" & {IDLE}")
    pid = one.wait_for("ready").strip()
    wait_until(lambda: parent_of(pid) == str(one.process.pid), "the orphan was not adopted")
    assert one.signal(signal.SIGTERM).end() == 0
    assert one.wait_for("saved") == "saved\n"


def daemon_quoted(script: str) -> str:
    return script.replace("'", "'\\''").replace("$", "\\$")


def parent_of(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]


def test_orphans_leave_no_zombies_while_the_container_runs(run: Any) -> None:
    one = run("for i in 1 2 3 4 5 6; do (sleep 0.02 & echo $! >> orphans); done; sleep 0.2; touch idle; sleep 60")
    wait_until((one.folder / "idle").exists, "the orphans did not start")
    pids = one.wait_for("orphans").split()
    assert len(pids) == 6
    wait_until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "zombies stayed")
    assert one.signal(signal.SIGTERM).end() == 0


def test_who_does_not_listen_is_killed_after_the_grace_and_named(run: Any) -> None:
    one = run("trap '' TERM; touch ready; while :; do read -t 0.1 < <(:); done", grace=0.6)
    wait_until((one.folder / "ready").exists, "not started")
    assert one.signal(signal.SIGTERM).end() == 137
    assert 0.5 < one.seconds < 4
    assert "killed, still there 0.6 s after the stop began: bash" in one.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_hurries(run: Any, number: int) -> None:
    one = run("trap 'echo heard > heard' TERM; echo x > ready; while :; do sleep 0.05; done")
    one.wait_for("ready")
    one.signal(signal.SIGTERM).wait_for("heard")
    assert one.signal(number).end() == 137
    assert one.seconds < 2
    assert "a second signal" in one.err


def test_a_hang_up_after_the_signal_does_not_hurry(run: Any) -> None:
    one = run("trap 'echo x > heard; sleep 0.4; echo x > saved; exit 0' TERM; echo x > ready; sleep 60 & wait")
    one.wait_for("ready")
    one.signal(signal.SIGTERM).wait_for("heard")
    assert one.signal(signal.SIGHUP).end() == 0
    assert one.wait_for("saved")


def test_a_stopped_process_hears_the_signal(run: Any) -> None:
    one = run("sleep 60 & echo $! > ready; kill -STOP $!; touch idle; wait")
    pid = one.wait_for("ready").strip()
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "T", "not stopped")
    assert one.signal(signal.SIGTERM).end() == 0
    assert one.seconds < 2


def test_workers_are_left_to_the_trainer_that_saves(run: Any) -> None:
    worker = "signal.signal(signal.SIGTERM, lambda *_: os._exit(9)); open('ready', 'w').write('x'); time.sleep(60)"
    trainer = f"""
import os, signal, time
pid = os.fork()
if pid == 0:
    {worker}
def save(*_):
    time.sleep(0.3)  # while it saves, its worker must live
    lives = os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
    open("saved", "w").write(str(lives))
    os._exit(0)
signal.signal(signal.SIGTERM, save)
time.sleep(60)
"""
    one = run(python=trainer)
    one.wait_for("ready")
    assert one.signal(signal.SIGTERM).end() == 0
    assert one.wait_for("saved") == "True"


PTY = """
import os, pty, signal, sys, time
pid, master = pty.fork()
if pid == 0:
    os.environ["PS1"] = "ready> "
    os.execv("/bin/bash", ["bash", "--norc", "--noprofile", "-i"])
seen = b""
while b"ready> " not in seen:
    seen += os.read(master, 1000)
os.write(master, sys.argv[1].encode() + b"\\n")
open("shell", "w").write(str(pid))
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # as a terminal server: closes the terminal at once
while True:
    try:
        os.read(master, 1000)
    except OSError:
        time.sleep(60)  # the shell is gone; like Jupyter, this one stays
"""


def terminal(tmp_path: Path, typed: str, grace: float = 8.0) -> Run:
    return Run(tmp_path, [("terminals", [sys.executable, "-c", PTY, typed])], grace)


def test_an_idle_terminal_does_not_delay_the_stop(run: Any, tmp_path: Path) -> None:
    one = terminal(tmp_path, "echo x > ready")
    one.wait_for("ready")
    shell = one.wait_for("shell")
    assert one.signal(signal.SIGTERM).end() == 0
    assert one.seconds < 2
    assert not is_alive(shell)


def test_training_in_a_terminal_saves_although_a_hang_up_would_kill_it(run: Any, tmp_path: Path) -> None:
    save = "lambda *_:(time.sleep(.5),open('saved','w').write('x'),os._exit(0))"
    train = f"import signal,time,os;signal.signal(15,{save})"
    typed = f"{sys.executable} -c \"{train};open('ready','w').write('x');time.sleep(60)\""
    one = terminal(tmp_path, typed)
    one.wait_for("ready")
    assert one.signal(signal.SIGTERM).end() == 0
    assert one.wait_for("saved") == "x"
    assert one.seconds < 3


def test_a_process_outside_is_never_touched(run: Any) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as outside:
        one = run(IDLE)
        wait_until((one.folder / "idle").exists, "not started")
        one.signal(signal.SIGTERM).end()
        assert outside.poll() is None
        outside.kill()


SERVICE = Service("lab", [SHELL], {}, "/", None)
USER = Identity(4321, 4321, (), "user", "/home/user", drop=True, profile="root")
PROCESS = Process(99, 1, 99, 99, 0, "S", "python", started=5)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A kernel that lets root signal nobody; returns what is done instead."""
    done: list[str] = []

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module, "read_process", lambda pid: PROCESS)
    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(log, "warn", done.append)
    return done


def test_a_signal_that_root_may_not_send_is_sent_as_the_user(
    refusing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_as", lambda identity, function: refusing.append(f"as {identity.uid}"))
    supervisor = module._Supervisor(8, set())
    supervisor._identities.append(USER)
    supervisor._send(PROCESS, signal.SIGTERM)
    assert refusing == ["as 4321"]


def test_a_signal_that_nobody_may_send_is_said_once(refusing: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_as", lambda identity, function: function())
    supervisor = module._Supervisor(8, set())
    supervisor._identities.append(USER)
    supervisor._send(PROCESS, signal.SIGTERM)
    supervisor._send(PROCESS, signal.SIGKILL)
    assert len(refusing) == 1
    assert "--cap-add KILL" in refusing[0] and "python" in refusing[0]


def test_of_two_that_ended_at_once_the_first_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = iter([(7, 3 << 8), (8, 4 << 8), (0, 0)])
    monkeypatch.setattr(os, "waitpid", lambda pid, flags: next(ended))
    supervisor = module._Supervisor(8, set())
    supervisor._running = {7: SERVICE, 8: SERVICE}
    failure = supervisor._reap()
    assert failure and failure.code == 3
    assert supervisor._running == {}


def test_an_empty_walk_through_proc_is_no_proof_that_all_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "descendants", lambda top: {})
    pauses: list[int] = []
    answers = iter([(0, 0), (0, 0), (9, 0)])

    def waitpid(pid: int, flags: int) -> tuple[int, int]:
        try:
            return next(answers)
        except StopIteration:
            raise ChildProcessError from None

    monkeypatch.setattr(os, "waitpid", waitpid)
    supervisor = module._Supervisor(8, set())
    monkeypatch.setattr(supervisor, "_pause", lambda: pauses.append(1))
    assert supervisor._stop() is False
    assert len(pauses) == 2


def test_a_number_that_is_another_process_by_now_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(pid))
    supervisor = module._Supervisor(8, set())
    for now in (None, Process(99, 1, 99, 99, 0, "S", "python", started=6)):
        monkeypatch.setattr(module, "read_process", lambda pid, now=now: now)
        supervisor._send(PROCESS, signal.SIGTERM)
    assert sent == []


def test_a_service_with_an_identity_becomes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    def become(identity: Identity) -> None:
        marks.write_text(str(identity.uid))
        raise StartError("stop here", "seen", "do")

    monkeypatch.setattr(module, "become", become)
    with pytest.raises(StartError, match="lab could not be started"):
        module._start(Service("lab", [SHELL], {}, "/", USER), set())
    assert marks.read_text() == "4321"
    assert module._explain(SERVICE, -9).code == 137
