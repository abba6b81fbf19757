"""The end of a container: quick when idle, with time for work to be saved, never with a question, and honest."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders, owner
from tests.support.lab import Lab, printed_token
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wait import until

PUBLISH = ("--publish", "127.0.0.1::8888")
# Promised in design and README: an idle container, and one with idle terminals, stops within it.
IDLE_STOP_SECONDS = 2.0
CLEAN = (0, 143)


def stop_in_time(container: Tracked) -> None:
    seconds = container.stop()
    code = container.state["ExitCode"]
    print(f"stopped in {seconds:.2f} s with {code}")
    assert code in CLEAN, f"exit {code}; its log:\n{container.log()}"
    assert seconds < IDLE_STOP_SECONDS, f"{seconds:.2f} s; its log:\n{container.log()}"


@pytest.mark.parametrize("profile", [(), ("--user", "12345:0"), ("--cap-drop", "ALL"), ("--pid", "host")])
def test_an_idle_jupyterlab_stops_at_once(containers: Containers, image: str, profile: tuple[str, ...]) -> None:
    container = containers.start(image, options=[*PUBLISH, *profile], quiet=False)
    Lab.of(container)
    stop_in_time(container)


def test_with_an_idle_kernel_and_terminals_it_stops_at_once(containers: Containers, image: str) -> None:
    container = containers.start(image, options=PUBLISH)
    lab = Lab.of(container)
    lab.run("", keep=True)
    for _ in range(2):
        lab.ask("api/terminals", "POST", json={}).raise_for_status()
    until(
        "a line in the log",
        lambda: container.exec("pgrep", "-c", "bash").out.strip() == "2" or None,
        lambda: container.exec("ps", "-ef").out,
    )
    stop_in_time(container)


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_a_command_gets_the_signal_itself(containers: Containers, thin: str, name: str) -> None:
    script = f"trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.1; done"
    container = containers.start(thin, "bash", "-c", script)
    container.wait_for_line("ready")
    container.signal(f"SIG{name}")
    assert container.wait() == 5
    assert f"got {name}" in container.log()


def test_a_command_without_a_handler_ends_with_143(containers: Containers, thin: str) -> None:
    container = containers.start(thin, "sleep", "600")
    container.wait_for_process("sleep")
    assert container.stop() < IDLE_STOP_SECONDS
    assert container.state["ExitCode"] == 143


def test_work_in_a_terminal_has_time_to_save(containers: Containers, image: str, folders: Folders) -> None:
    """What a training in a terminal needs: TERM, and some seconds."""
    work = folders.new((4321, 4321))
    container = containers.start(image, options=[*PUBLISH, "--volume", f"{work}:/workspace/code"], quiet=False)
    lab = Lab.of(container)
    save = "trap 'sleep 3; echo saved > /workspace/code/saved; exit' TERM; touch /workspace/code/up; sleep 600 & wait"
    # A child of JupyterLab, as a terminal's program is: an exec'd process would not descend from it.
    lab.run(f"import subprocess; subprocess.Popen(['setsid', 'bash', '-c', {save!r}])")
    until("a line in the log", lambda: (work / "up").exists() or None, lambda: container.exec("ps", "-ef").out)
    container.stop()
    assert (work / "saved").read_text() == "saved\n"
    assert container.state["ExitCode"] in CLEAN


def test_a_process_that_will_not_end_is_killed_and_named(containers: Containers, image: str) -> None:
    container = containers.start(image, options=PUBLISH, quiet=False)
    lab = Lab.of(container)
    lab.run("import subprocess; subprocess.Popen(['setsid', 'bash', '-c', \"trap '' TERM HUP; exec sleep 600\"])")
    seconds = container.stop()
    assert 7 < seconds < 12, f"{seconds:.1f} s"
    assert container.state["ExitCode"] == 137
    assert "killed, still there 8 s after the stop began: sleep" in container.log()


def test_a_service_that_dies_ends_the_container_with_the_reason(containers: Containers, image: str) -> None:
    container = containers.start(image, options=PUBLISH, quiet=False)
    Lab.of(container)
    container.exec("pkill", "-KILL", "-f", "jupyter-lab").ok()
    assert container.wait() == 137
    message = container.log(stdout=False).rpartition("start: ")[2].splitlines()
    assert message[0] == "jupyter was ended by SIGKILL (signal 9)"
    assert message[1].startswith("  seen: ")
    assert message[2].startswith("  do:   ")


def test_no_process_is_left_as_a_zombie(containers: Containers, image: str) -> None:
    container = containers.start(image, options=PUBLISH)
    lab = Lab.of(container)
    lab.run("import subprocess\nfor _ in range(20): subprocess.Popen(['setsid', 'sh', '-c', 'true &'])")

    def probe() -> bool:
        return "Z" not in container.exec("ps", "-eo", "stat").ok().out

    until("a line in the log", lambda: probe() or None, lambda: container.exec("ps", "-ef").out)


def test_ctrl_c_on_a_terminal_stops_jupyterlab_without_a_question(containers: Containers, image: str) -> None:
    command = containers.command(image, options=["--rm", "--interactive", "--tty", *PUBLISH])
    with Terminal(command) as terminal:
        terminal.wait_for(r"JupyterLab: \S+token=[0-9a-f]{48}")
        container = containers.adopt(command[3])
        container.gone = True  # it goes by itself: --rm
        lab = Lab(f"http://127.0.0.1:{container.port(8888)}/")
        lab.wait()
        begun = time.monotonic()
        terminal.press(CTRL_C)
        code = terminal.wait()
        seconds = time.monotonic() - begun
    print(f"stopped in {seconds:.2f} s with {code}")
    assert code in (*CLEAN, 130)
    assert seconds < IDLE_STOP_SECONDS, terminal.screen
    assert "Shutdown this" not in terminal.screen
    assert "Traceback" not in terminal.screen


def test_ctrl_c_and_the_exit_code_on_a_terminal_are_the_commands(containers: Containers, thin: str) -> None:
    command = containers.command(thin, "bash", options=["--rm", "--interactive", "--tty"])
    with Terminal(command) as terminal:
        terminal.wait_for(r"user@\S+.*\$ ")
        terminal.press(b"sleep 600\r")
        terminal.wait_for(r"sleep 600\r\n")
        time.sleep(0.3)  # bash prints the echo before sleep owns the terminal
        terminal.press(CTRL_C)
        terminal.press(b"echo code=$?; id -u; tty; exit 3\r")
        assert terminal.wait() == 3
    assert "code=130" in terminal.screen
    assert "1000\r\n/dev/pts/0" in terminal.screen
    assert "no job control" not in terminal.screen


@pytest.mark.parametrize(("signal", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_training_stopped_in_mid_epoch_saves_and_says_so(
    containers: Containers, image: str, folders: Folders, signal: str, code: int
) -> None:
    out = folders.new((4321, 4321))
    arguments = ("train", "--epochs", "50", "--out", "/workspace/code/run")
    container = containers.start(image, *arguments, options=["--volume", f"{out}:/workspace/code"], quiet=False)
    container.wait_for_line(r"epoch 1/50|into /workspace/code/run")
    time.sleep(2)  # into the epoch
    container.signal(signal)
    assert container.wait() == code, container.log()
    assert "Traceback" not in container.log()
    assert owner(out / "run/checkpoint.pt") == (4321, 4321)
    with contextlib.suppress(FileNotFoundError):  # a run that was stopped has no end result
        assert "test_accuracy" not in json.loads((out / "run/metrics.json").read_text())
    if signal == "SIGTERM":
        check_that_it_goes_on(containers, image, out)


def check_that_it_goes_on(containers: Containers, image: str, out: Path) -> None:
    resume = ("train", "--resume", "/workspace/code/run", "--dry-run")
    options = ["--volume", f"{out}:/workspace/code"]
    containers.run(image, *resume, options=options, budget="a short training").ok()


def test_logs_end_with_the_containers_end(containers: Containers, image: str) -> None:
    """Nothing of the last words is lost in a pipe."""
    container = containers.start(image, options=PUBLISH)
    Lab.of(container)
    assert printed_token(container)
    container.stop()
    assert "received signal 15, stopping" in container.log().splitlines()[-1]
