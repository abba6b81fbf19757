"""Reading the files that users name, without trusting their path."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from entrypoint import secrets
from entrypoint.errors import StartError
from entrypoint.identity import Identity
from entrypoint.settings import Given

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of root and of others")


def token(path: Any) -> Any:
    return Given("JUPYTER_TOKEN", path=str(path))


def reveal(path: Any) -> Any:
    return secrets.reveal(token(path), secrets.read_as_user)


@pytest.mark.parametrize(("content", "value"), [(b"abc", "abc"), (b"abc\n", "abc"), (b"abc\r\n", "abc")])
def test_one_line_end_is_taken_off(tmp_path: Path, content: Any, value: Any) -> None:
    (tmp_path / "token").write_bytes(content)
    assert reveal(tmp_path / "token") == value


@pytest.mark.parametrize("content", [b"abc\n\n", b"abc \n", b"a\nb", b"\xff\xfe", b"a\0b"])
def test_a_file_with_more_than_one_clean_line_is_refused_by_its_name(tmp_path: Path, content: Any) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(StartError) as caught:
        reveal(tmp_path / "token")
    assert caught.value.code == 64
    assert str(tmp_path / "token") in caught.value.seen


def test_a_refused_content_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2 hunter3")
    with pytest.raises(StartError) as caught:
        reveal(tmp_path / "token")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: Any) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(StartError, match="JUPYTER_TOKEN_FILE names is empty"):
        reveal(tmp_path / "token")


def test_a_public_key_file_may_have_many_lines(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("ssh-ed25519 AAAA me\nssh-rsa BBBB you\n")
    given = Given("SSH_PUBLIC_KEY", path=str(tmp_path / "keys"))
    assert secrets.reveal(given, secrets.read_as_user) == "ssh-ed25519 AAAA me\nssh-rsa BBBB you"


def test_a_value_that_was_given_directly_needs_no_file() -> None:
    assert secrets.reveal(Given("JUPYTER_TOKEN", value="abc"), secrets.read_as_user) == "abc"
    assert secrets.reveal(Given("JUPYTER_TOKEN"), secrets.read_as_user) is None


def test_a_missing_file_is_named_with_the_way_to_mount_it(tmp_path: Path) -> None:
    with pytest.raises(StartError) as caught:
        reveal(tmp_path / "token")
    assert caught.value.seen == f"{tmp_path}/token: there is no such file in the container"
    assert f"-v $PWD/FILE:{tmp_path}/token:ro" in caught.value.do


@pytest.mark.parametrize("read", [secrets.read_as_user, secrets.read_as_root])
def test_a_fifo_is_refused_and_does_not_hang(tmp_path: Path, read: Any) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(secrets.UnreadableError, match="not a regular file"):
        read(str(tmp_path / "fifo"))


@pytest.mark.parametrize("read", [secrets.read_as_user, secrets.read_as_root])
def test_a_directory_and_a_device_are_refused(tmp_path: Path, read: Any) -> None:
    for path in (str(tmp_path), "/dev/zero"):
        with pytest.raises(secrets.UnreadableError):
            read(path)


@pytest.mark.parametrize("read", [secrets.read_as_user, secrets.read_as_root])
def test_a_huge_file_is_refused(tmp_path: Path, read: Any) -> None:
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    with pytest.raises(secrets.UnreadableError, match="larger than"):
        read(str(tmp_path / "big"))


@as_root
def test_links_of_root_inside_one_mount_are_followed_as_kubernetes_makes_them(tmp_path: Path) -> None:
    folder = tmp_path / "..2026_12_01"
    folder.mkdir()
    (folder / "token").write_text("abc")
    (tmp_path / "..data").symlink_to("..2026_12_01")
    (tmp_path / "token").symlink_to("..data/token")
    assert secrets.read_as_root(str(tmp_path / "token")) == b"abc"


@as_root
def test_an_absolute_link_of_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("abc")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert secrets.read_as_root(str(tmp_path / "link")) == b"abc"


@as_root
def test_a_link_of_the_users_is_not_followed_by_root(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("abc")
    (tmp_path / "link").symlink_to("real")
    os.lchown(tmp_path / "link", 1000, 1000)
    with pytest.raises(secrets.UnreadableError, match="link on the way is not root's"):
        secrets.read_as_root(str(tmp_path / "link"))


@as_root
def test_a_folder_that_is_a_link_of_the_users_is_not_followed_by_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "token").write_text("abc")
    (tmp_path / "link").symlink_to("real")
    os.lchown(tmp_path / "link", 1000, 1000)
    with pytest.raises(secrets.UnreadableError, match="link on the way is not root's"):
        secrets.read_as_root(str(tmp_path / "link" / "token"))


@as_root
def test_a_link_of_root_to_a_file_of_the_users_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("abc")
    os.chown(tmp_path / "real", 1000, 1000)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(secrets.UnreadableError, match="it is not root's"):
        secrets.read_as_root(str(tmp_path / "link"))


@as_root
def test_a_link_that_leaves_its_mount_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/version")
    with pytest.raises(secrets.UnreadableError, match="leaves its mount"):
        secrets.read_as_root(str(tmp_path / "link"))


@as_root
def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(secrets.UnreadableError, match="symbolic links"):
        secrets.read_as_root(str(tmp_path / "a"))


def test_a_file_with_a_second_name_is_not_read_by_root(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    os.link(tmp_path / "token", tmp_path / "other")
    with pytest.raises(secrets.UnreadableError, match="hard link"):
        secrets.read_as_root(str(tmp_path / "token"))


def test_reading_as_root_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    before = len(os.listdir("/proc/self/fd"))
    secrets.read_as_root(str(tmp_path / "token"))
    assert len(os.listdir("/proc/self/fd")) == before


def user(drop: Any) -> Any:
    return Identity(1000, 1000, (0,), "user", "/home/user", drop, "root" if drop else "user")


@as_root
def test_root_reads_what_only_root_may_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"abc\xff")
    (tmp_path / "token").chmod(0o600)
    assert secrets.reader_for(user(drop=True))(str(tmp_path / "token")) == b"abc\xff"


@as_root
def test_a_link_of_the_users_to_what_only_root_may_read_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    (tmp_path / "shadow").write_text("abc")
    (tmp_path / "shadow").chmod(0o600)
    (tmp_path / "link").symlink_to("shadow")
    os.lchown(tmp_path / "link", 1000, 1000)
    with pytest.raises(secrets.UnreadableError, match="not root's"):
        secrets.reader_for(user(drop=True))(str(tmp_path / "link"))


@as_root
def test_the_user_may_follow_links_of_the_users_own(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for above in (tmp_path, *list(tmp_path.parents)[:2]):
        above.chmod(stat.S_IMODE(above.stat().st_mode) | 0o055)
    folder.mkdir(mode=0o755)
    (folder / "real").write_text("abc")
    (folder / "real").chmod(0o644)
    (folder / "link").symlink_to("real")
    os.lchown(folder / "link", 1000, 1000)
    assert secrets.reader_for(user(drop=True))(str(folder / "link")) == b"abc"


def test_without_root_only_the_users_own_rights_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "read_as_root", lambda path: b"read as root")
    (tmp_path / "token").write_text("abc")
    read = secrets.reader_for(user(drop=False))
    assert read(str(tmp_path / "token")) == b"abc"
    with pytest.raises(secrets.UnreadableError, match="no such file"):
        read(str(tmp_path / "missing"))
