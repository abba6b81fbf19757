"""The start as a whole: what happens in which order, and how a mistake ends it."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoint import __main__ as start
from entrypoint.identity import Identity
from entrypoint.settings import Settings
from entrypoint.user import User

REPOSITORY = Path(__file__).parents[2]
CODE = sorted([*(REPOSITORY / "entrypoint").glob("*.py"), *(REPOSITORY / "scripts" / "image").glob("*.py")])


class Replaced(BaseException):
    """In the place of a process that has become another program."""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A start whose every act is written down instead of done."""
    acts = []
    identity = Identity(1000, 1000, (0,), "user", "/home/user", True, "root")
    user = User(identity, tmp_path, {b"PATH": b"/bin"})

    def note(name: Any, result: Any = None) -> Any:
        def act(*arguments: Any, **_: Any) -> Any:
            acts.append((name, *arguments))
            return result

        return act

    def become_program(argv: Any, environ: Any) -> None:
        acts.append(("run", argv, os.getcwd()))
        raise Replaced

    monkeypatch.setattr(start, "set_up_user", note("set up", user))
    monkeypatch.setattr(start, "become", note("become"))
    monkeypatch.setattr(start, "give_stdio", note("stdio"))
    monkeypatch.setattr(start, "run_as", lambda _, function: function())
    monkeypatch.setattr(start, "become_program", become_program)
    monkeypatch.setattr("entrypoint.services.refuse_missing", note("refuse"))
    monkeypatch.setattr("entrypoint.services.plan_services", note("plan", ["lab"]))
    monkeypatch.setattr("entrypoint.hooks.run_hooks", note("hooks"))
    monkeypatch.setattr("entrypoint.supervise.supervise", note("supervise", 0))
    monkeypatch.chdir(tmp_path)
    return acts


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environ: str) -> Any:
    container = {name.encode(): value.encode() for name, value in environ.items()}
    monkeypatch.setattr(start, "read_container_environment", lambda pid: container)
    with contextlib.suppress(Replaced):
        return start.main(arguments)


def names(acts: Any) -> Any:
    return [act[0] for act in acts]


def test_a_command_is_run_as_the_user_in_the_containers_folder(
    done: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, "bash", "-c", "x")
    assert names(done) == ["set up", "stdio", "become", "run"]
    assert done[-1] == ("run", ("bash", "-c", "x"), str(tmp_path))


def test_services_start_after_the_hooks(done: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch) == 0
    assert names(done) == ["refuse", "set up", "stdio", "hooks", "plan", "supervise"]
    assert done[-1] == ("supervise", ["lab"])


def test_a_command_leaves_no_list_of_services_for_the_health_check(
    done: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "services.json").touch()
    run(monkeypatch, "true")
    assert not (tmp_path / "services.json").exists()


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        ((), {"MODE": "jupiter"}),
        ((), {"JUPYTER_PORT": "88o8"}),
        (("jupyter",), {"JUPYTER_TOKEN": ""}),
        (("jupyter",), {"JUPYTER_TOKEN": "a", "JUPYTER_TOKEN_FILE": "/b"}),
        (("true",), {"PUID": "abc"}),
    ],
)
def test_a_mistake_is_one_message_of_three_parts_and_nothing_is_set_up(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: Any, environ: Any
) -> None:
    assert run(monkeypatch, *arguments, **environ) == 64
    printed = capfd.readouterr()
    assert printed.out == ""
    assert [line[:7] for line in printed.err.splitlines()] == ["start: ", "  seen:", "  do:  "]
    assert "set up" not in names(done)


def test_a_variable_that_the_command_does_not_use_may_be_wrong(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "true", JUPYTER_PORT="88o8", MODE="jupiter", JUPYTER_TOKEN="")
    assert "run" in names(done)
    assert capfd.readouterr().err == ""


def test_a_port_of_kubernetes_is_said_in_one_line_and_jupyter_starts(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, JUPYTER_PORT="tcp://10.0.0.1:80") == 0
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("train",)])
def test_a_required_gpu_is_looked_for_before_anything_is_set_up(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: Any
) -> None:
    monkeypatch.setattr("entrypoint.gpu.has_gpu", lambda dev: False)
    monkeypatch.setattr(start, "_refuse_a_missing_program", lambda plan: None)
    assert run(monkeypatch, *arguments, REQUIRE_GPU="1") == 64
    assert "REQUIRE_GPU=1" in capfd.readouterr().err
    assert "set up" not in names(done)


def test_a_program_of_ours_that_this_image_lacks_is_named(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "doctor") == 127
    assert "this image has no doctor" in capfd.readouterr().err


@pytest.mark.parametrize(("option", "words"), [("--help", "usage: docker run"), ("--version", "pytorch-cuda")])
def test_help_and_version_go_to_stdout_and_set_nothing_up(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], option: Any, words: Any
) -> None:
    assert run(monkeypatch, option) == 0
    printed = capfd.readouterr()
    assert words in printed.out
    assert (printed.err, done) == ("", [])


def test_ctrl_c_during_the_start_ends_it_without_a_traceback(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "set_up_user", interrupt)
    assert run(monkeypatch) == 130
    assert capfd.readouterr().err == ""


def test_a_mistake_of_ours_is_three_lines_and_no_traceback(
    done: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "set_up_user", lambda *_: 1 // 0)
    assert run(monkeypatch) == 70
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "ZeroDivisionError" in lines[1] and "test_main.py:" in lines[1]


def test_a_folder_that_is_gone_does_not_stop_the_command(
    done: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "fchdir", lambda fd: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    run(monkeypatch, "true")
    assert "starts in /" in capfd.readouterr().err
    assert done[-1][2] == "/"


def test_the_start_needs_nothing_but_an_isolated_standard_library(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "scripts" / "image" / "start.py", tmp_path)
    for package in ("entrypoint", "doctor"):
        (tmp_path / package).symlink_to(REPOSITORY / package)
    command = [sys.executable, "-I", "-S", str(tmp_path / "start.py"), "--help"]
    found = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, check=True)
    assert found.stdout.startswith("usage: docker run")


def test_a_command_does_not_pay_for_what_only_services_need() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import entrypoint.__main__; "
        "print(sorted({'json', 'ssl', 'http.client', 'subprocess', 'ctypes', 'difflib'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_the_code_is_python_3_9(path: Any) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_every_setting_that_a_plan_asks_for_is_read() -> None:
    settings = Settings.read({}, ("PUID",))
    assert settings["PUID"] is None
    with pytest.raises(KeyError):
        settings["JUPYTER_PORT"]
