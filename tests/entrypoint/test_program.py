"""Finding and becoming the user's command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoint.errors import StartError
from entrypoint.program import find_program


@pytest.fixture
def program(tmp_path: Path) -> Any:
    def write(folder: Any, mode: Any = 0o755, script: Any = "#!/bin/sh\necho ran\n") -> Any:
        path = tmp_path / folder / "tool"
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(mode)
        return path

    return write


def search_path(*folders: Any) -> Any:
    return b":".join(os.fsencode(folder) for folder in folders)


def test_the_first_executable_on_the_path_is_found(tmp_path: Path, program: Any) -> None:
    program("a", mode=0o644)
    second, third = program("b"), program("c")
    assert find_program("tool", search_path(second.parent, third.parent)) == str(second)
    assert find_program("tool", search_path(tmp_path / "a", second.parent)) == str(second)


def test_a_name_with_a_slash_is_not_searched(tmp_path: Path, program: Any) -> None:
    path = program("a")
    assert find_program(str(path), b"/nowhere") == str(path)


def test_an_empty_part_of_the_path_is_the_current_folder(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program("a").parent)
    assert find_program("tool", b"/nowhere:") == "./tool"


@pytest.mark.parametrize("name", ["no-such-tool", "/no/such/tool", ""])
def test_what_is_not_there_is_127(name: Any, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="there is no command") as caught:
        find_program(name, search_path(tmp_path))
    assert caught.value.code == 127


def test_what_is_not_executable_is_126(program: Any) -> None:
    path = program("a", mode=0o644)
    for name in ("tool", str(path)):
        with pytest.raises(StartError, match="not executable") as caught:
            find_program(name, search_path(path.parent))
        assert caught.value.code == 126


def test_a_folder_is_126(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="is a directory") as caught:
        find_program(str(tmp_path), b"")
    assert caught.value.code == 126


def test_a_mistyped_word_gets_the_word_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="did you mean train"):
        find_program("tarin", search_path(tmp_path))


def test_an_option_of_docker_after_the_image_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="before the image's name"):
        find_program("--gpus", search_path(tmp_path))


def become(*argv: Any, **environ: str) -> Any:
    code = (
        "import os, sys, entrypoint.program as p\n"
        "environ = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items()}\n"
        "try: p.become_program(sys.argv[1:], environ)\n"
        "except p.StartError as error: sys.exit(error.code)"
    )
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.getcwd(), **environ}
    return subprocess.run([sys.executable, "-c", code, *argv], env=environ, capture_output=True, text=True, check=False)


def test_the_program_gets_its_arguments_unchanged() -> None:
    assert become("printf", "<%s>", "a b", "", "$x").stdout == "<a b><><$x>"


def test_the_program_is_not_deaf_to_a_closed_pipe() -> None:
    found = become("sh", "-c", "trap - PIPE; grep SigIgn /proc/self/status").stdout
    assert int(found.split()[1], 16) == 0


def test_a_program_that_the_kernel_refuses_is_126(program: Any) -> None:
    assert become(str(program("a", script="no first line\n"))).returncode == 126
    assert become(str(program("a", script="#!/no/such/interpreter\n"))).returncode == 126
    assert become(str(program("a"))).returncode == 0
