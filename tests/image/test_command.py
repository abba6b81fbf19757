"""`docker run IMAGE PROGRAM ...`: the program runs unchanged, as if the image had no entrypoint but for the user."""

from __future__ import annotations

import pytest

from tests.support.containers import Containers

# Printed by the program with repr(), so that every byte counts.
AWKWARD = (
    "",
    " ",
    "two words",
    "a\nnewline",
    "tab\there",
    "$HOME `id` $(id)",
    "quo'te \"s",
    "\\",
    "*",
    "ünï 中文",
    "--",
)


def test_nothing_is_added_to_stdout_or_stderr(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "sh", "-c", "echo out; echo err >&2").ok()
    assert (done.raw_out, done.raw_err) == (b"out\n", b"err\n")


@pytest.mark.parametrize("code", [1, 3, 64, 126, 255])
def test_the_exit_code_is_the_programs(containers: Containers, thin: str, code: int) -> None:
    assert containers.run(thin, "sh", "-c", f"exit {code}").ended(code).err == ""


def test_a_program_that_a_signal_ended_shows_in_the_exit_code(containers: Containers, thin: str) -> None:
    containers.run(thin, "sh", "-c", "kill -KILL $$").ended(137)


def test_arguments_arrive_byte_for_byte(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "python", "-c", "import sys; print(ascii(sys.argv[1:]))", *AWKWARD).ok()
    assert done.out.strip() == ascii(list(AWKWARD))


def test_the_working_folder_is_the_one_that_was_asked_for(containers: Containers, thin: str) -> None:
    assert containers.run(thin, "pwd").ok().out == "/workspace\n"
    assert containers.run(thin, "pwd", options=["--workdir", "/usr/share"]).ok().out == "/usr/share\n"


def test_stdin_reaches_the_program(containers: Containers, thin: str) -> None:
    assert containers.run(thin, "cat", options=["--interactive"], stdin=b"\x00in\xff").ok().raw_out == b"\x00in\xff"


def test_the_umask_lets_the_group_write(containers: Containers, thin: str) -> None:
    assert containers.run(thin, "sh", "-c", "umask").ok().out == "0002\n"


def test_signals_are_as_a_shell_would_leave_them(containers: Containers, thin: str) -> None:
    """Python ignores SIGPIPE; a program that inherited that would complain in `yes | head -1`."""
    done = containers.run(thin, "bash", "-c", "yes | head -n 1; grep -E 'SigIgn|SigBlk' /proc/self/status").ok()
    assert done.err == ""
    assert done.out.split() == ["y", "SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


def test_the_environment_is_exactly_the_containers(containers: Containers, thin: str) -> None:
    """But for the four variables that say who the user is; odd names and values included."""
    given = {
        "dotted.name": "1",
        "dash-name": "2",
        "UPPER": "a b\nc",
        "EMPTY": "",
        "LD_LIBRARY_PATH": "/nowhere",
        "PYTHONPATH": "/nowhere/either",
        "BASH_ENV": "/nowhere/at/all",
        "JUPYTER_TOKEN": "the-commands-own",
        "JUPYTER_PORT": "not-a-port",
        "MODE": "nonsense",
    }
    options = [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
    ours = containers.run(thin, "env", "-0", options=options).ok()
    plain = containers.run(thin, "-0", options=[*options, "--entrypoint", "/usr/bin/env"]).ok()
    mine, theirs = environment(ours.raw_out), environment(plain.raw_out)
    who = {b"HOME", b"USER", b"LOGNAME", b"SHELL"}
    assert {name: value for name, value in mine.items() if name not in who | {b"HOSTNAME"}} == {
        name: value for name, value in theirs.items() if name not in who | {b"HOSTNAME"}
    }
    assert {name: mine[name] for name in who} == {
        b"HOME": b"/home/user",
        b"USER": b"user",
        b"LOGNAME": b"user",
        b"SHELL": b"/bin/bash",
    }


def environment(data: bytes) -> dict[bytes, bytes]:
    return dict(entry.partition(b"=")[::2] for entry in data.split(b"\0") if entry)


@pytest.mark.parametrize("command", [("jupyter", "--version"), ("ssh", "-V"), ("code", ".")])
def test_a_word_for_a_mode_with_arguments_is_an_ordinary_program(
    containers: Containers, thin: str, command: tuple[str, str]
) -> None:
    """`ssh` is in the thin image; the other two are not, and the error is that of a missing program."""
    done = containers.run(thin, *command)
    if command[0] == "ssh":
        assert done.ok().err.startswith("OpenSSH")
    else:
        assert f"there is no command '{command[0]}'" in done.ended(127).err


def test_a_missing_program_is_named(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "trian", "--epochs", "1").ended(127)
    assert done.out == ""
    assert done.err.startswith("start: there is no command 'trian' in the image\n  seen: ")
    assert "did you mean train?" in done.err


def test_a_program_without_execute_permission_is_named(containers: Containers, thin: str) -> None:
    assert "/etc/passwd is not executable" in containers.run(thin, "/etc/passwd").ended(126).err


def test_a_script_of_the_work_folder_runs(containers: Containers, thin: str) -> None:
    code = "printf '#!/bin/sh\\necho \"$0 $1\"\\n' > s; chmod +x s; exec ./s 'a b'"
    assert containers.run(thin, "sh", "-c", code).ok().out == "./s a b\n"


def test_help_and_version_are_on_stdout(containers: Containers, image: str) -> None:
    help_text = containers.run(image, "--help").ok()
    assert help_text.err == ""
    assert {"JUPYTER_TOKEN", "PUID", "train", "--version"} <= set(help_text.out.replace("[_FILE]", "").split())
    version = containers.run(image, "--version").ok()
    assert version.err == ""
    assert "torch        2.7.1" in version.out


def test_programs_are_found_in_the_promised_order(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "sh", "-c", "echo $PATH; command -v python").ok()
    path, python = done.out.splitlines()
    first = path.split(":")[:3]
    assert first == ["/opt/pytorch-cuda/bin", "/opt/conda/envs/pytorch/bin", "/opt/conda/bin"]
    assert python == "/opt/conda/envs/pytorch/bin/python"


def test_docker_exec_as_user_has_the_same_name_home_and_python(containers: Containers, thin: str) -> None:
    container = containers.start(thin, "sleep", "600", options=["--env", "PUID=4321"])
    container.wait_for_process("sleep")
    code = "import os, sys; print(os.getuid(), sys.executable)"
    done = container.exec("python", "-c", code, user="user").ok()
    assert done.out == "4321 /opt/conda/envs/pytorch/bin/python\n"
