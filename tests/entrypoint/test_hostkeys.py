"""Host keys: made once, kept where they can be kept, and never anybody else's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from entrypoint import hostkeys
from entrypoint.errors import StartError
from entrypoint.folders import open_folder

# Stands in for ssh-keygen: makes a new "key" at each call, and knows its own again.
KEYGEN = r"""#!/bin/sh
for last; do :; done
if [ "$1" = -y ]; then
    grep -q '^key ' "$last" || exit 1
    echo "ssh-$(cut -d' ' -f2 "$last") $(cut -d' ' -f3 "$last" | base64)"
else
    echo "key $3 $(cut -d- -f1 /proc/sys/kernel/random/uuid)" >"$last"; echo public >"$last.pub"
fi
"""


@pytest.fixture
def rundir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "keygen"
    program.write_text(KEYGEN)
    program.chmod(0o755)
    monkeypatch.setattr(hostkeys, "KEYGEN", str(program))
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "host_keys"
    folder.mkdir()
    return folder


def prepare(rundir: Path, volume: Path) -> Any:
    return list(hostkeys.prepare_host_keys(rundir, str(volume)).values())


def test_keys_are_made_once_and_kept(rundir: Path, volume: Path) -> None:
    first = prepare(rundir, volume)
    assert [line.split()[0] for line in first] == ["ED25519", "RSA"]
    assert prepare(rundir, volume) == first
    assert sorted(path.name for path in volume.iterdir()) == ["ssh_host_ed25519_key", "ssh_host_rsa_key"]
    assert {path.stat().st_mode & 0o777 for path in volume.iterdir()} == {0o600}


def test_sshd_reads_roots_own_copies_that_nobody_else_can(rundir: Path, volume: Path) -> None:
    prepare(rundir, volume)
    (volume / "ssh_host_rsa_key").chmod(0o644)
    prepare(rundir, volume)
    copies = rundir / "host_keys"
    modes = {path.name: path.stat().st_mode & 0o777 for path in copies.iterdir()}
    names = ("ssh_host_ed25519_key", "ssh_host_rsa_key")
    assert modes == {**dict.fromkeys(names, 0o600), **{f"{name}.pub": 0o644 for name in names}}
    assert (copies / "ssh_host_rsa_key.pub").read_text().startswith("ssh-rsa ")
    assert (copies / "ssh_host_rsa_key").read_text() == (volume / "ssh_host_rsa_key").read_text()


def test_a_missing_key_is_made_beside_the_other(rundir: Path, volume: Path) -> None:
    ed25519, rsa = prepare(rundir, volume)
    (volume / "ssh_host_rsa_key").unlink()
    again = prepare(rundir, volume)
    assert again[0] == ed25519
    assert again[1] != rsa


def test_a_folder_that_cannot_be_written_is_said_and_sshd_has_keys(
    rundir: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert len(prepare(rundir, tmp_path / "missing")) == 2
    assert "cannot be kept" in capfd.readouterr().err


def test_a_damaged_key_stops_and_names_the_file(rundir: Path, volume: Path) -> None:
    (volume / "ssh_host_rsa_key").write_text("half a k")
    with pytest.raises(StartError, match="ssh_host_rsa_key: ssh-keygen does not take it") as caught:
        prepare(rundir, volume)
    assert "half a k" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="a link of another user's takes root to make")
def test_a_link_that_a_user_planted_is_neither_read_nor_written_through(
    rundir: Path, volume: Path, tmp_path: Path
) -> None:
    target = tmp_path / "shadow"
    target.write_text("key root secret")
    (volume / "ssh_host_rsa_key").symlink_to(target)
    os.lchown(volume / "ssh_host_rsa_key", 1234, 1234)
    with pytest.raises(StartError, match="a link on the way is not root's"):
        prepare(rundir, volume)
    assert target.read_text() == "key root secret"


def test_a_keygen_that_fails_stops_the_start(rundir: Path, volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostkeys, "KEYGEN", "/bin/false")
    with pytest.raises(StartError, match="no host key could be made"):
        prepare(rundir, volume)


def test_a_new_key_is_stored_whole_or_not_at_all(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with open_folder(volume) as fd, pytest.raises(OSError, match="No space"):
        hostkeys._store(fd, "ssh_host_rsa_key", b"key")
    assert list(volume.iterdir()) == []
