"""`--fix`: what it mends, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

from doctor.repair import repair
from tests.doctor.patients import patient, write


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_missing_folders_are_made_once(tmp_path: Path) -> None:
    write(tmp_path, {"/home/user/x": ""})
    assert repair(patient(tmp_path)) == [
        "made /home/user/.cache",
        "made /home/user/.config",
        "made /home/user/.local/share",
    ]
    assert repair(patient(tmp_path)) == []


def test_a_missing_home_is_left_to_its_check(tmp_path: Path) -> None:
    assert repair(patient(tmp_path)) == []


def test_private_keys_are_closed_and_public_ones_left(tmp_path: Path) -> None:
    ssh = tmp_path / "home/user/.ssh"
    write(tmp_path, {"/home/user/.ssh/id_ed25519": "", "/home/user/.ssh/id_ed25519.pub": "", "/home/user/.cache/x": ""})
    ssh.chmod(0o775)
    for name in ("id_ed25519", "id_ed25519.pub"):
        (ssh / name).chmod(0o644)
    done = repair(patient(tmp_path))
    assert "gave /home/user/.ssh mode 0700" in done and "gave /home/user/.ssh/id_ed25519 mode 0600" in done
    assert (mode(ssh), mode(ssh / "id_ed25519"), mode(ssh / "id_ed25519.pub")) == (0o700, 0o600, 0o644)


def test_links_and_files_of_others_are_left(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch(0o644)
    write(tmp_path, {"/home/user/.ssh/known_hosts": ""})
    os.symlink(target, tmp_path / "home/user/.ssh/id_rsa")
    assert not [line for line in repair(patient(tmp_path)) if "id_rsa" in line]
    assert mode(target) == 0o644
    sick = patient(tmp_path, uid=os.getuid() + 1)
    (tmp_path / "home/user/.ssh").chmod(0o777)
    assert not [line for line in repair(sick) if ".ssh" in line]
