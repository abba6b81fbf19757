"""The end of a container with ssh sessions: at once when they are idle, and with time for work to be saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders
from tests.support.lab import Lab
from tests.support.laptop import Laptop, Servers
from tests.support.wait import until

IDLE_STOP_SECONDS = 2.0
CLEAN = (0, 143)
PUBLISH = ("--publish", "127.0.0.1::8888")


def wait_for_lines(server: Tracked, command: str, lines: Sequence[str]) -> None:
    """Wait until a command inside prints these lines."""
    until(
        "a line in the log",
        lambda: server.exec("sh", "-c", command).out.split() == list(lines) or None,
        lambda: f"{server.exec('ps', '-ef').out}\n{server.log()}",
    )


def open_sessions(laptop: Laptop, server: Tracked) -> None:
    """Two shells at a prompt, a command that sleeps, a forwarded port, tmux."""
    for _ in range(2):
        laptop.start(server, options=["-tt"])
    laptop.start(server, "sleep 1000")
    laptop.start(server, options=["-N", "-L", "7100:localhost:22"])
    laptop.ssh(server, "tmux new-session -d; sleep 0.2").ok()
    wait_for_lines(server, "pgrep -c bash; pgrep -c sleep; pgrep -c tmux", ["3", "1", "1"])


def stop_in_time(server: Tracked) -> None:
    seconds = server.stop()
    code = server.state["ExitCode"]
    print(f"stopped in {seconds:.2f} s with {code}")
    assert code in CLEAN, f"exit {code}; its log:\n{server.log()}"
    assert seconds < IDLE_STOP_SECONDS, f"{seconds:.2f} s; its log:\n{server.log()}"


@pytest.mark.parametrize("profile", [(), ("--pid", "host"), ("--env", "PUID=4321")])
def test_an_idle_sshd_and_open_sessions_stop_at_once(
    servers: Servers, thin: str, laptop: Laptop, profile: tuple[str, ...]
) -> None:
    stop_in_time(servers.start(thin, *profile))
    if "--pid" in profile:
        return  # there one would count the host's shells; the next test has that case
    server = servers.start(thin, *profile)
    open_sessions(laptop, server)
    stop_in_time(server)


def test_under_pid_host_no_process_outside_is_touched(servers: Servers, containers: Containers, thin: str) -> None:
    """A process of the same uid, in another container of the same machine."""
    bystander = containers.start(thin, "sleep", "600")
    bystander.wait_for_process("sleep")
    server = servers.start(thin, "--pid", "host")
    stop_in_time(server)
    assert bystander.state["Running"]
    assert "sleep 600" in str(bystander.container.top())


@pytest.mark.parametrize("mode", ["auto", "all"])
def test_both_services_with_terminals_and_sessions_stop_at_once(
    servers: Servers, image: str, laptop: Laptop, mode: str
) -> None:
    server = servers.start(image, *PUBLISH, "--env", f"MODE={mode}", mode="", quiet=False)
    lab = Lab.of(server)
    lab.ask("api/terminals", "POST", json={}).raise_for_status()
    open_sessions_beside_a_terminal(laptop, server)
    stop_in_time(server)


def open_sessions_beside_a_terminal(laptop: Laptop, server: Tracked) -> None:
    laptop.start(server, options=["-tt"])
    laptop.start(server, "sleep 1000")
    wait_for_lines(server, "pgrep -c bash; pgrep -c sleep", ["2", "1"])


def test_work_in_a_session_has_time_to_save(servers: Servers, thin: str, laptop: Laptop, folders: Folders) -> None:
    """On a terminal, without one, and in the background of tmux: TERM first, and the line is held until it is done."""
    work = folders.new((4321, 4321))
    server = servers.start(thin, "--volume", f"{work}:/workspace/code", quiet=False)
    for name, options in (("terminal", ["-tt"]), ("plain", ["-T"])):
        laptop.start(server, f"bash -c {_saving(name)}", options=options)
    laptop.ssh(server, f"tmux new-session -d {_saving('tmux')}").ok()
    names = ["plain", "terminal", "tmux"]
    wait_for_lines(server, "cd /workspace/code; ls *.up | cut -d. -f1", names)
    server.stop()
    assert sorted(path.stem for path in work.glob("*.saved")) == names, server.log()
    assert server.state["ExitCode"] in CLEAN, server.log()


def _saving(name: str) -> str:
    """A program, quoted, that needs two seconds to save, and talks while it does so."""
    save = f"for i in 1 2; do echo saving; sleep 1; done; echo x > {name}.saved; exit"
    return f"\"cd /workspace/code; trap '{save}' TERM; touch {name}.up; while :; do sleep 0.1; done\""


def test_a_training_in_a_session_saves_its_checkpoint(
    servers: Servers, containers: Containers, image: str, laptop: Laptop, folders: Folders
) -> None:
    out = folders.new((4321, 4321))
    volume = ("--volume", f"{out}:/workspace/code")
    server = servers.start(image, *volume, quiet=False)
    train = "train --epochs 50 --out /workspace/code/run >/workspace/code/log 2>&1"
    laptop.start(server, f"pinfeed {train}", options=["-tt"])
    log: Path = out / "log"
    until(
        "a short training",
        lambda: (log.exists() and "epoch 1/50" in log.read_text()) or None,
        lambda: log.read_text() if log.exists() else server.exec("ps", "-ef").out,
    )
    server.stop()
    assert server.state["ExitCode"] in CLEAN, server.log()
    assert (out / "run/checkpoint.pt").stat().st_uid == 4321
    assert "Traceback" not in log.read_text()
    resume = ("train", "--resume", "/workspace/code/run", "--dry-run")
    containers.run(image, *resume, options=volume, budget="a short training").ok()


@pytest.mark.parametrize(("service", "pattern"), [("sshd", "sshd.* -D "), ("jupyter", "jupyter-lab")])
def test_when_one_service_dies_the_container_ends_with_the_reason(
    servers: Servers, image: str, service: str, pattern: str
) -> None:
    server = servers.start(image, *PUBLISH, mode="all", quiet=False)
    Lab.of(server)
    server.exec("pkill", "-KILL", "-o", "-f", pattern).ok()
    assert server.wait() == 137
    message = server.log(stdout=False).rpartition("start: ")[2].splitlines()
    assert message[0] == f"{service} was ended by SIGKILL (signal 9)"
    assert message[2].startswith("  do:   ")


def test_when_sshd_ends_by_itself_the_container_does_too(servers: Servers, thin: str) -> None:
    server = servers.start(thin, quiet=False)
    server.exec("pkill", "-TERM", "-o", "-f", "sshd.* -D ").ok()
    assert server.wait() != 0
    assert "start: sshd ended with exit status" in server.log()
