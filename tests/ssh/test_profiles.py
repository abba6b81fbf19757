"""Every way to start the image that is promised: a login as the right user, or a refusal that says why."""

from __future__ import annotations

import re

import pytest

from tests.support.containers import Containers
from tests.support.folders import Folders, Owner, owner
from tests.support.laptop import Laptop, Servers
from tests.support.profiles import NO_CAPABILITIES, NO_HOME, NO_WORKSPACE, NOEXEC, READ_ONLY

WORK = "/workspace/code"
WHO = f"id -u; id -g; cd {WORK}; touch by-ssh; mkdir sub; touch sub/file; id -un; echo ~"
STRANGE_HOME = (NO_HOME, NOEXEC)


@pytest.mark.parametrize(
    ("options", "runs_as"),
    [
        ((), (4321, 4321)),
        (("--env", "PUID=4321", "--env", "PGID=20"), (4321, 20)),
        (("--env", "PUID=4321", "--env", "PGID=0"), (4321, 0)),
        (("--env", "PUID=33"), (33, 1000)),
        (("--env", "PUID=2000000000", "--env", "PGID=2000000000"), (2000000000, 2000000000)),
        (("--env", "PUID=4294967294"), (4294967294, 1000)),
        (("--group-add", "4242"), (4321, 4321)),
        (("--security-opt", "no-new-privileges"), (4321, 4321)),
    ],
    ids=lambda value: "-".join(map(str, value)).replace("--", ""),
)
def test_the_user_logs_in_and_new_files_are_its_own(
    servers: Servers, laptop: Laptop, thin: str, folders: Folders, options: tuple[str, ...], runs_as: Owner
) -> None:
    folder = folders.new((4321, 4321), mode=0o777)
    server = servers.start(thin, "--volume", f"{folder}:{WORK}", *options)
    uid, gid, name, home = laptop.ssh(server, WHO).ok().out.split()
    assert (int(uid), int(gid), name, home) == (*runs_as, "user", "/home/user")
    assert owner(folder / "by-ssh") == owner(folder / "sub/file") == runs_as
    assert "/dev/pts" in laptop.ssh(server, "tty", options=["-tt"]).ok().out
    if "--group-add" in options:
        assert "4242" in laptop.ssh(server, "id -G").ok().out.split()
    big = server.exec("find", "/var/log", "/run", "-type", "f", "-size", "+1M").ok().out
    assert big == "", "a record by uid would be terabytes long"


@pytest.mark.parametrize(("puid", "uid"), [((), 1000), (("--env", "PUID=4321"), 4321), (("--env", "PUID=33"), 33)])
def test_on_a_read_only_disk(
    servers: Servers, laptop: Laptop, thin: str, folders: Folders, puid: tuple[str, ...], uid: int
) -> None:
    """/run is open to everybody there, and /etc/passwd cannot be changed."""
    folder = folders.new((uid, 1000))
    volume = ("--volume", f"{folder}:{WORK}")
    server = servers.start(thin, *READ_ONLY, *volume, *puid, expect=STRANGE_HOME)
    found, _, name, home = laptop.ssh(server, WHO).ok().out.split()
    assert (int(found), name, home) == (uid, "user", f"/tmp/pytorch-cuda-home-{uid}")
    assert owner(folder / "by-ssh") == (uid, 1000)
    done = laptop.ssh(server, "echo $HOME; touch ~/x; tty; whoami", options=["-tt"]).ok()
    assert done.out.split()[0] == home
    assert done.out.split()[-1] == "user"


def test_the_powerless_are_told_what_is_missing_and_with_that_it_works(
    containers: Containers, servers: Servers, laptop: Laptop, thin: str
) -> None:
    key = ("--env", f"SSH_PUBLIC_KEY={laptop.public}")
    done = containers.run(thin, "ssh", options=[*NO_CAPABILITIES, *key]).ended(64)
    what, seen, do = done.err.splitlines()[-3:]
    assert what == "start: sshd cannot run without some capabilities of root"
    assert seen == "  seen: missing here: SETUID, SETGID, SYS_CHROOT, KILL"
    named = [part for name in re.findall(r"--cap-add (\w+)", do) for part in ("--cap-add", name)]
    more = [part for name in do.rpartition("also ")[2].split(", ") for part in ("--cap-add", name)]
    no_terminal = (r"warning: ssh gives no terminal without CHOWN, DAC_OVERRIDE, FOWNER, AUDIT_WRITE",)
    few = servers.start(thin, *NO_CAPABILITIES, *named, expect=no_terminal)
    assert laptop.ssh(few, "id -u").ok().out == "1000\n"
    enough = servers.start(thin, *NO_CAPABILITIES, *named, *more)
    assert laptop.ssh(enough, "id -u").ok().out == "1000\n"
    assert "/dev/pts" in laptop.ssh(enough, "tty", options=["-tt"]).ok().out
    laptop.start(enough, options=["-tt"])
    assert enough.stop() < 2


@pytest.mark.parametrize("who", ["12345:0", "12345:12345", "1000:1000"])
def test_a_start_with_user_is_told_of_puid(containers: Containers, lean: str, laptop: Laptop, who: str) -> None:
    options = ["--user", who, "--env", f"SSH_PUBLIC_KEY={laptop.public}"]
    done = containers.run(lean, "ssh", options=options).ended(64)
    what, seen, do = done.err.splitlines()[-3:]
    assert what == "start: ssh needs a container that starts as root"
    assert seen == f"  seen: it was started with --user {who}"
    assert "-e PUID=$(id -u)" in do


@pytest.mark.parametrize(("uid", "words"), [("abc", "PUID must be a whole number"), ("0", "PUID=0 would run")])
def test_a_bad_puid_is_refused(containers: Containers, lean: str, laptop: Laptop, uid: str, words: str) -> None:
    options = ["--env", f"PUID={uid}", "--env", f"SSH_PUBLIC_KEY={laptop.public}"]
    assert words in containers.run(lean, "ssh", options=options).ended(64).err


@pytest.mark.parametrize("volume", ["empty", "roots"])
def test_a_home_volume_that_was_roots_or_empty(
    containers: Containers, servers: Servers, laptop: Laptop, lean: str, volume: str
) -> None:
    name = containers.volume()
    mount = ("--volume", f"{name}:/home/user")
    if volume == "roots":
        fill = ["--entrypoint", "/bin/sh", *mount]
        containers.run(
            lean, "-c", "touch /home/user/theirs; chown -R 0:0 /home/user; chmod 755 /home/user", options=fill
        ).ok()
    server = servers.start(
        lean, *mount, expect=(r"warning: /home/user cannot be written",) if volume == "roots" else ()
    )
    home = laptop.ssh(server, "echo ~; touch ~/mine").ok().out.strip()
    assert home == ("/home/user" if volume == "empty" else "/tmp/pytorch-cuda-home-1000")


def test_nothing_but_the_mount_is_touched(servers: Servers, laptop: Laptop, lean: str, folders: Folders) -> None:
    """Never a recursive chown: what lies in the home and in the work folder keeps its owner."""
    folder = folders.new((4321, 4321))
    folders.file(folder / "theirs", "", owner=(5555, 5555))
    server = servers.start(lean, "--volume", f"{folder}:{WORK}", "--volume", f"{folder}:/home/user/data")
    laptop.ssh(server, "true").ok()
    assert owner(folder / "theirs") == (5555, 5555)


def test_no_workspace_is_a_warning_and_ssh_works(servers: Servers, laptop: Laptop, lean: str, folders: Folders) -> None:
    folder = folders.new((0, 0))
    folders.file(folder / "theirs", "", owner=(0, 0))
    warning = (NO_WORKSPACE.replace("/workspace ", WORK + " "),)
    server = servers.start(lean, "--volume", f"{folder}:{WORK}", expect=warning)
    laptop.ssh(server, "true").ok()
