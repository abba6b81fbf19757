"""Public keys: every way to give one, what is said of bad ones, and what a user who plants things gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders
from tests.support.laptop import Laptop

IN_HOME = "/home/user/.ssh/authorized_keys"
FILE = "/etc/pytorch-cuda/authorized_keys"
FOLDER = "/etc/pytorch-cuda/ssh_keys.d"


@pytest.fixture(scope="module")
def second(laptop: Laptop) -> str:
    """The public line of another key."""
    return laptop.make_key("second", "rsa -b 2048")


def test_several_lines_with_the_line_ends_of_windows(
    containers: Containers, thin: str, laptop: Laptop, second: str
) -> None:
    keys = f"{laptop.public.strip()}\r\n\r\n# a comment\r\n{second.strip()}\r\n"
    container = laptop.wait_for(containers.start(thin, "ssh", options=["--env", f"SSH_PUBLIC_KEY={keys}"]))
    laptop.ssh(container, "true").ok()
    laptop.ssh(container, "true", key="second").ok()
    assert "2 public keys may log in: 2 from SSH_PUBLIC_KEY" in container.log()


def test_a_file_that_the_variable_names(containers: Containers, lean: str, laptop: Laptop, folders: Folders) -> None:
    path = folders.file(folders.new() / "key", laptop.public, 0o600, (4321, 4321))
    options = ["--volume", f"{path}:/run/secrets/key:ro", "--env", "SSH_PUBLIC_KEY_FILE=/run/secrets/key"]
    container = laptop.wait_for(containers.start(lean, "ssh", options=options))
    laptop.ssh(container, "true").ok()


@pytest.mark.parametrize("place", [IN_HOME, FILE])
@pytest.mark.parametrize("owner", [(4321, 4321), (0, 0), (1000, 1000)])
def test_a_mounted_file_whoever_owns_it(
    containers: Containers, lean: str, laptop: Laptop, folders: Folders, place: str, owner: tuple[int, int]
) -> None:
    """Closed to all but its owner, and read-only: sshd itself would refuse it (field report B025)."""
    path = folders.file(folders.new() / "keys", laptop.public, 0o600, owner)
    container = containers.start(lean, "ssh", options=["--volume", f"{path}:{place}:ro"])
    laptop.ssh(laptop.wait_for(container), "true").ok()
    assert f"1 from {place}" in container.log()
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o777) == (*owner, 0o600)


def test_the_folder_that_the_engine_made_for_a_mounted_file_is_the_users(
    containers: Containers, lean: str, laptop: Laptop, folders: Folders
) -> None:
    """Else `git clone git@...` could not note whom it has met."""
    path = folders.file(folders.new() / "keys", laptop.public, 0o600, (0, 0))
    server = laptop.wait_for(containers.start(lean, "ssh", options=["--volume", f"{path}:{IN_HOME}:ro"]))
    laptop.ssh(server, "touch ~/.ssh/known_hosts").ok()
    assert path.stat().st_uid == 0


def test_a_mounted_folder_of_public_keys(
    containers: Containers, thin: str, laptop: Laptop, folders: Folders, second: str
) -> None:
    folder = folders.new()
    folders.file(folder / "one.pub", laptop.public)
    folders.file(folder / "two.pub", second)
    folders.file(folder / "two", "-----BEGIN OPENSSH PRIVATE KEY-----\n")
    container = laptop.wait_for(containers.start(thin, "ssh", options=["--volume", f"{folder}:{FOLDER}:ro"]))
    laptop.ssh(container, "true").ok()
    laptop.ssh(container, "true", key="second").ok()


@pytest.mark.parametrize("place", [FOLDER, "/home/user/.ssh"])
def test_keys_as_kubernetes_mounts_them(
    containers: Containers, thin: str, laptop: Laptop, folders: Folders, place: str
) -> None:
    """key -> ..data/key, ..data -> ..2026_12_01, all of it root's and closed to others."""
    folder = folders.new((0, 0))
    name = "me.pub" if place == FOLDER else "authorized_keys"
    inner = folder / "..2026_12_01"
    inner.mkdir(mode=0o755)
    folders.file(inner / name, laptop.public, 0o400, (0, 0))
    (folder / "..data").symlink_to(inner.name)
    (folder / name).symlink_to(f"..data/{name}")
    container = containers.start(thin, "ssh", options=["--volume", f"{folder}:{place}:ro"])
    laptop.ssh(laptop.wait_for(container), "true").ok()


def test_a_key_that_is_taken_away_is_gone_after_a_restart(
    containers: Containers, lean: str, laptop: Laptop, folders: Folders, second: str
) -> None:
    folder = folders.new()
    for name, key in (("one.pub", laptop.public), ("two.pub", second)):
        folders.file(folder / name, key)
    container = laptop.wait_for(containers.start(lean, "ssh", options=["--volume", f"{folder}:{FOLDER}:ro"]))
    laptop.ssh(container, "true", key="second").ok()
    (folder / "two.pub").unlink()
    container.restart()
    laptop.wait_for(container)
    laptop.ssh(container, "true").ok()
    laptop.ssh(container, "true", key="second").ended(255)


def test_bad_lines_are_named_and_never_quoted_and_the_others_work(
    containers: Containers, lean: str, laptop: Laptop, folders: Folders
) -> None:
    private = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n"
    folder = folders.new()
    folders.file(folder / "good.pub", f"hunter2 hunter3\n{laptop.public}{laptop.public[:40]}\n")
    folders.file(folder / "private.pub", private)
    warnings = (
        rf"warning: {FOLDER}/good\.pub, line 1: neither a key type",
        rf"warning: {FOLDER}/good\.pub, line 3: the key is damaged",
        rf"warning: {FOLDER}/private\.pub, line 1: this is a private key",
    )
    container = containers.start(lean, "ssh", options=["--volume", f"{folder}:{FOLDER}:ro"], expect=warnings)
    laptop.ssh(laptop.wait_for(container), "true").ok()
    for word in ("hunter2", "c2VjcmV0", laptop.public.split()[1][:30]):
        assert word not in container.log()


def plant(containers: Containers, lean: str, script: str) -> tuple[str, str]:
    """Let a user prepare its home volume; returns the options that mount it again."""
    volume = ("--volume", f"{containers.volume()}:/home/user")
    containers.run(lean, "sh", "-c", f"mkdir -p ~/.ssh; cd ~/.ssh; {script}", options=volume).ok()
    return volume


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("ln -s /etc/shadow authorized_keys", "a link on the way is not root's"),
        ("ln -s /proc/1/environ authorized_keys", "a link on the way is not root's|not a regular file|denied"),
        ("mkfifo authorized_keys", "not a regular file"),
        ("ln -s /dev/zero authorized_keys", "a link on the way is not root's"),
        ("rmdir ~/.ssh; ln -s /etc ~/.ssh; true", None),
        ("mkdir authorized_keys", "it is a folder"),
        ("head -c 200000 /dev/zero >authorized_keys", "larger than"),
    ],
)
def test_what_a_user_plants_is_neither_read_as_root_nor_waited_for(
    containers: Containers, lean: str, laptop: Laptop, script: str, why: str
) -> None:
    volume = plant(containers, lean, script)
    expect = [rf"warning: {IN_HOME}: .*({why})"] if why else []
    options = [*volume, "--env", f"SSH_PUBLIC_KEY={laptop.public}"]
    container = laptop.wait_for(containers.start(lean, "ssh", options=options, expect=expect))
    laptop.ssh(container, "true").ok()
    assert "root:" not in container.log()
    assert container.exec("cat", "/run/pytorch-cuda/authorized_keys.d/user").ok().out == laptop.public


def test_a_key_that_the_user_added_in_its_home_volume_counts_after_a_restart(
    containers: Containers, lean: str, laptop: Laptop
) -> None:
    volume = plant(containers, lean, f"echo '{laptop.public.strip()}' > authorized_keys; chmod 600 authorized_keys")
    container = laptop.wait_for(containers.start(lean, "ssh", options=volume))
    laptop.ssh(container, "true").ok()


def test_sshd_reads_no_file_of_the_users(laptop: Laptop, server: Tracked) -> None:
    """A key that appears in the home while sshd runs opens nothing."""
    public = laptop.make_key("late")
    script = f"mkdir -p ~/.ssh; echo '{public.strip()}' >> ~/.ssh/authorized_keys; echo PATH=/trap > ~/.ssh/environment"
    laptop.ssh(server, script).ok()
    laptop.ssh(server, "true", key="late").ended(255)
    assert "/trap" not in laptop.ssh(server, "echo $PATH").ok().out
    laptop.ssh(server, "rm -r ~/.ssh").ok()


def test_a_program_that_the_user_puts_in_its_folder_is_not_run_by_root(
    containers: Containers, lean: str, laptop: Laptop
) -> None:
    """The start works in / with system folders on PATH, whatever lies in /workspace or first on the user's PATH."""
    volume = ("--volume", f"{containers.volume()}:/workspace")
    names = "sed ssh-keygen sshd python3 sh id cat chown mkdir getent"
    trap = "#!/bin/sh\\n/bin/touch /workspace/sprung-$(/usr/bin/id -u)\\n"
    script = f"for n in {names}; do printf '{trap}' > /workspace/$n; chmod +x /workspace/$n; done; /workspace/sed"
    containers.run(lean, "sh", "-c", script, options=volume).ok()
    options = [*volume, "--env", "PATH=/workspace:/usr/bin:/bin", "--env", f"SSH_PUBLIC_KEY={laptop.public}"]
    container = laptop.wait_for(containers.start(lean, "ssh", options=options))
    laptop.ssh(container, "/bin/true").ok()
    found = container.exec("/bin/ls", "/workspace").ok().out.split()
    assert "sprung-1000" in found, "the trap is no trap"
    assert [name for name in found if name.startswith("sprung") and name != "sprung-1000"] == []


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "no key was given"),
        ("hunter2 hunter3", "SSH_PUBLIC_KEY, line 1: neither a key type"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2", "SSH_PUBLIC_KEY, line 1: this is a private key"),
        ("$(cat ~/.ssh/hunter2.pub)", "SSH_PUBLIC_KEY, line 1: this is a command that no shell has run"),
    ],
)
@pytest.mark.parametrize("mode", ["ssh", "all"])
def test_without_a_good_key_ssh_is_refused_with_the_reason(
    containers: Containers, lean: str, image: str, mode: str, value: str, why: str
) -> None:
    which = image if mode == "all" else lean  # the thin image has no JupyterLab
    done = containers.run(which, mode, options=["--env", f"SSH_PUBLIC_KEY={value}"]).ended(64)
    assert done.out == ""
    what, seen, do = done.err.splitlines()
    assert what == "start: ssh needs a public key that may log in"
    assert seen.startswith(f"  seen: {why}")
    assert do.startswith("  do:   docker run -p 2222:22 -e SSH_PUBLIC_KEY=")
    assert "hunter" not in done.err


@pytest.mark.parametrize("path", ["/no/such/file", "/etc", "/proc/1/mem"])
def test_a_key_file_that_cannot_be_read_is_named(containers: Containers, lean: str, path: str) -> None:
    done = containers.run(lean, "ssh", options=["--env", f"SSH_PUBLIC_KEY_FILE={path}"]).ended(64)
    assert f"seen: {path}: " in done.err


def test_a_file_to_mount_that_is_not_there_is_explained(containers: Containers, lean: str, folders: Folders) -> None:
    missing: Path = folders.missing()
    done = containers.run(lean, "ssh", options=["--volume", f"{missing}:{FILE}"]).ended(64)
    assert f"seen: {FILE}: it is a folder; Docker makes one where the file to mount does not exist" in done.err
