"""doctor in the image: whose environment it reads, and whom root becomes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doctor import launch


def test_the_environment_is_the_parents(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/environ").write_bytes(b"A=1\0B=x=y\nz\0A=2\0broken\0=odd\0C=\xff\0")
    assert launch.environment_of(7, str(tmp_path)) == {"A": "1", "B": "x=y\nz", "C": os.fsdecode(b"\xff")}
    assert launch.environment_of(8, str(tmp_path)) == {}


def test_the_user_is_the_one_that_the_start_wrote_down(tmp_path: Path) -> None:
    made, image = tmp_path / "extrausers", tmp_path / "passwd"
    image.write_text("root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n")
    made.write_text("root:x:0:0:root:/root:/bin/bash\nuser:x:4321:20:user:/tmp/home:/bin/bash\n")
    assert launch.find_account((str(made), str(image))) == (4321, 20, "/tmp/home")
    made.unlink()
    assert launch.find_account((str(made), str(image))) == (1000, 1000, "/home/user")


@pytest.mark.parametrize("line", ["user:x:abc:1:u:/h:/s", "user:x:1", "other:x:1000:1000:u:/h:/s", ""])
def test_a_damaged_file_names_nobody(tmp_path: Path, line: str) -> None:
    (tmp_path / "passwd").write_text(line + "\n")
    assert launch.find_account((str(tmp_path / "passwd"),)) is None


def test_root_gives_its_rights_up_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[object, ...]] = []
    for name in ("initgroups", "setgid", "setuid", "umask"):
        monkeypatch.setattr(os, name, lambda *given, name=name: done.append((name, *given)))
    changed = launch.become(launch.Account(4321, 20, "/tmp/home"))
    assert done == [("initgroups", "user", 20), ("setgid", 20), ("setuid", 4321), ("umask", 2)]
    assert changed == {"HOME": "/tmp/home", "USER": "user", "LOGNAME": "user"}


@pytest.mark.parametrize("error", [PermissionError(1, "no capability"), OSError(22, "the id is not mapped")])
def test_a_root_without_power_stays_what_it_is(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "initgroups", refuse)
    assert launch.become(launch.Account(1000, 1000, "/home/user")) == {}


@pytest.mark.parametrize("account", [None, launch.Account(0, 0, "/root")])
def test_a_rootless_root_is_the_user(account: launch.Account | None) -> None:
    assert launch.become(account) == {}
