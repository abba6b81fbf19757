"""Every checker is content: the same commands that `make lint` runs, one test each."""

from __future__ import annotations

import subprocess

import pytest

from scripts import lint, names


@pytest.mark.parametrize("command", lint.commands(), ids=lambda command: " ".join(command[:2]))
def test_a_checker_is_content(command: list[str]) -> None:
    program = [str(lint.TOOLS / command[0]), *command[1:]]
    done = subprocess.run(program, cwd=names.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_programs_of_the_shell_are_found_by_their_first_line() -> None:
    assert [path.as_posix() for path in lint.files() if lint.is_shell(path) and path.parts[0] == ".ci"] == [".ci/run"]
