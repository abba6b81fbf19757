"""Start hooks: order, what they may do, and what a failing one leads to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoint.errors import StartError
from entrypoint.hooks import find_hooks, run_hooks


@pytest.fixture
def hook(tmp_path: Path) -> Any:
    def write(name: Any, script: Any, mode: Any = 0o755) -> Any:
        path = tmp_path / "start.d" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(mode)
        return str(path)

    return write


def run(tmp_path: Path, **environ: str) -> None:
    container = {name.encode(): value.encode() for name, value in environ.items()}
    run_hooks(find_hooks(str(tmp_path / "start.d")), {b"PATH": b"/usr/bin:/bin", **container}, str(tmp_path))


def test_hooks_run_in_the_order_of_their_names(tmp_path: Path, hook: Any) -> None:
    for name in ("20-b", "10-a", "30-c"):
        hook(name, f"#!/bin/sh\necho {name} >> order\n")
    run(tmp_path)
    assert (tmp_path / "order").read_text().split() == ["10-a", "20-b", "30-c"]


def test_no_folder_means_no_hooks(tmp_path: Path) -> None:
    assert find_hooks(str(tmp_path / "missing")) == ()


def test_folders_and_kubernetes_own_names_are_no_hooks(tmp_path: Path, hook: Any) -> None:
    hook("..data", "#!/bin/sh\nexit 1\n")
    (tmp_path / "start.d" / "folder").mkdir()
    kept = hook("10-a", "#!/bin/sh\n")
    assert find_hooks(str(tmp_path / "start.d")) == (kept,)


def test_what_a_hook_prints_goes_to_stderr(tmp_path: Path, hook: Any, capfd: pytest.CaptureFixture[str]) -> None:
    hook("10-a", "#!/bin/sh\necho hello\n")
    run(tmp_path)
    assert capfd.readouterr() == ("", "hello\n")


@pytest.fixture
def typed() -> Iterator[None]:
    """A line on the standard input of the start, as a terminal's user may have typed."""
    reader, writer = os.pipe()
    os.write(writer, b"typed\n")
    os.close(writer)
    before = os.dup(0)
    os.dup2(reader, 0)
    yield
    os.dup2(before, 0)
    os.close(before)
    os.close(reader)


def test_a_hook_that_reads_gets_nothing_of_what_was_typed(tmp_path: Path, hook: Any, typed: None) -> None:
    hook("10-a", '#!/bin/sh\nread line && echo "$line" > got || echo end > got\n')
    run(tmp_path)
    assert (tmp_path / "got").read_text() == "end\n"


def test_a_hook_has_the_users_environment_and_umask(tmp_path: Path, hook: Any) -> None:
    hook("10-a", '#!/bin/sh\nprintf %s "$ODD" > value\numask > mask\n')
    run(tmp_path, ODD="a b\n$x")
    assert (tmp_path / "value").read_text() == "a b\n$x"
    assert (tmp_path / "mask").read_text() == "0002\n"


def test_a_failing_hook_stops_the_start_and_is_named_with_its_status(tmp_path: Path, hook: Any) -> None:
    path = hook("10-bad", "#!/bin/sh\nexit 3\n")
    hook("20-never", "#!/bin/sh\ntouch ran\n")
    with pytest.raises(StartError) as caught:
        run(tmp_path)
    assert (caught.value.code, caught.value.seen) == (3, f"{path}: it ended with exit status 3")
    assert "10-bad" in caught.value.what
    assert not (tmp_path / "ran").exists()


def test_a_hook_that_is_killed_is_named_with_the_signal(tmp_path: Path, hook: Any) -> None:
    hook("10-bad", "#!/bin/sh\nkill -KILL $$\n")
    with pytest.raises(StartError, match="SIGKILL") as caught:
        run(tmp_path)
    assert caught.value.code == 137


def test_a_hook_that_cannot_be_run_is_named(tmp_path: Path, hook: Any) -> None:
    hook("10-bad", "#!/no/such/interpreter\n")
    with pytest.raises(StartError, match="could not be run") as caught:
        run(tmp_path)
    assert caught.value.code == 126


def test_files_without_execute_permission_are_skipped_with_one_warning(
    tmp_path: Path, hook: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    skipped = [hook(name, "#!/bin/sh\nexit 1\n", mode=0o644) for name in ("10-a", "20-b")]
    hook("30-c", "#!/bin/sh\ntouch ran\n")
    run(tmp_path)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert all(path in lines[0] for path in skipped)
    assert os.path.exists(tmp_path / "ran")
