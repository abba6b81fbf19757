"""Whose files: the four rules of docs/configuration.md, seen from the host, and what is never given away."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from tests.support.containers import Containers, Done
from tests.support.folders import Folders, Owner, owner

WORK = "/workspace/code"
# Shows who runs and leaves a file and a folder behind.
LEAVE = "id -u; id -g; mkdir -p sub && touch file sub/file"


def leave(containers: Containers, thin: str, folder: Path, options: tuple[str, ...] = (), at: str = WORK) -> Done:
    """Run the image with the folder mounted and leave something in it."""
    mount = ("--volume", f"{folder}:{at}", "--workdir", at)
    return containers.run(thin, "sh", "-c", LEAVE, options=[*mount, *options])


def ids(done: Done) -> Owner:
    uid, gid = map(int, done.ok().out.split())
    return uid, gid


@pytest.mark.parametrize("at", [WORK, "/workspace"])
@pytest.mark.parametrize(
    ("whose", "runs_as"), [((4321, 4321), (4321, 4321)), ((4321, 0), (4321, 1000)), ((500, 100), (500, 100))]
)
def test_rule_2_a_folders_owner_keeps_it(
    containers: Containers, thin: str, folders: Folders, at: str, whose: Owner, runs_as: Owner
) -> None:
    folder = folders.new(whose)
    done = leave(containers, thin, folder, at=at)
    assert ids(done) == runs_as
    assert done.err == ""
    assert owner(folder) == whose
    assert owner(folder / "file") == owner(folder / "sub/file") == runs_as


@pytest.mark.parametrize("uid", [0, 65534])
def test_rule_4_an_empty_folder_of_nobodys_is_given_to_1000(
    containers: Containers, thin: str, folders: Folders, uid: int
) -> None:
    folder = folders.new((uid, uid))
    done = leave(containers, thin, folder)
    assert ids(done) == (1000, 1000)
    assert done.err == f"pytorch-cuda: {WORK} was empty and root's: it belongs to 1000:1000 now\n"
    assert owner(folder) == owner(folder / "file") == (1000, 1000)


def test_rule_4_a_missing_folder_is_made_and_given_to_1000(containers: Containers, thin: str, folders: Folders) -> None:
    folder = folders.missing()
    assert ids(leave(containers, thin, folder)) == (1000, 1000)
    assert owner(folder) == owner(folder / "file") == (1000, 1000)


def test_rule_4_a_full_folder_of_roots_stays_roots_and_one_line_says_how_to_mend_it(
    containers: Containers, thin: str, folders: Folders
) -> None:
    folder = folders.new((0, 0))
    folders.file(folder / "theirs", "", owner=(0, 0))
    mount = ("--volume", f"{folder}:{WORK}")
    done = containers.run(thin, "id", "-u", options=mount).ok()
    assert done.out == "1000\n"
    assert one_warning(done).endswith("sudo chown 1000:1000 FOLDER   (the folder that is mounted there)")
    assert owner(folder) == owner(folder / "theirs") == (0, 0)


def test_rule_4_a_full_folder_of_roots_that_all_may_write_is_no_reason_to_warn(
    containers: Containers, thin: str, folders: Folders
) -> None:
    folder = folders.new((0, 0), mode=0o777)
    folders.file(folder / "theirs", "", owner=(0, 0))
    done = leave(containers, thin, folder)
    assert ids(done) == (1000, 1000)
    assert done.err == ""
    assert owner(folder) == (0, 0)
    assert owner(folder / "file") == (1000, 1000)


@pytest.mark.parametrize(
    ("variables", "runs_as"),
    [({"PUID": 4321, "PGID": 4322}, (4321, 4322)), ({"PUID": 4321}, (4321, 1000)), ({"PUID": 33}, (33, 1000))],
)
def test_rule_1_puid_and_pgid_come_first(
    containers: Containers, thin: str, folders: Folders, variables: dict[str, int], runs_as: Owner
) -> None:
    """33 is an account of the system's: the name `user` moves there all the same."""
    folder = folders.new((0, 0))
    given = environment(variables)
    assert ids(leave(containers, thin, folder, given)) == runs_as
    assert owner(folder) == owner(folder / "file") == runs_as
    named = containers.run(thin, "sh", "-c", "whoami; echo ~user", options=given).ok()
    assert named.out.split() == ["user", "/home/user"]


def environment(variables: dict[str, int]) -> tuple[str, ...]:
    return tuple(part for name, value in variables.items() for part in ("--env", f"{name}={value}"))


def test_rule_1_puid_does_not_take_another_owners_folder(containers: Containers, thin: str, folders: Folders) -> None:
    folder = folders.new((5555, 5555))
    mount = ("--volume", f"{folder}:{WORK}", "--env", "PUID=4321")
    done = containers.run(thin, "id", "-u", options=mount).ok()
    assert done.out == "4321\n"
    assert one_warning(done).endswith("Start with -e PUID=5555 -e PGID=5555, its owner")
    assert owner(folder) == (5555, 5555)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--user", "12345:12345"), "sudo chown 12345:12345 FOLDER"),
        (("--user", "12345:0"), "sudo chown 12345:0 FOLDER"),
        (("--cap-drop", "ALL"), None),
    ],
)
def test_nothing_is_given_away_by_a_start_without_power(
    containers: Containers, thin: str, folders: Folders, options: tuple[str, ...], remedy: Optional[str]
) -> None:
    folder = folders.new((0, 0))
    done = containers.run(thin, "true", options=[*options, "--volume", f"{folder}:{WORK}"]).ok()
    assert owner(folder) == (0, 0)
    warnings = [line for line in done.err.splitlines() if f"cannot write in {WORK}" in line]
    assert len(warnings) == (1 if remedy else 0)
    assert (remedy or "") in "".join(warnings)


def test_a_read_only_mount_is_one_line_and_it_starts(containers: Containers, thin: str, folders: Folders) -> None:
    folder = folders.new((4321, 4321))
    done = containers.run(thin, "id", "-u", options=["--volume", f"{folder}:{WORK}:ro"]).ok()
    assert done.out == "4321\n"
    assert "(without :ro)" in one_warning(done)


def one_warning(done: Done) -> str:
    lines = done.err.splitlines()
    assert len(lines) == 1, done
    assert lines[0].startswith(f"pytorch-cuda: warning: cannot write in {WORK} ("), done
    return lines[0]


def test_nothing_below_the_top_folder_is_ever_given_away(containers: Containers, thin: str, folders: Folders) -> None:
    """PUID's folder, with another's files in it: a recursive chown would take them."""
    folder = folders.new((4321, 4321))
    sub = folder / "sub"
    sub.mkdir()
    folders.file(sub / "theirs", "", owner=(0, 0))
    folders.give(sub, (0, 0))
    containers.run(thin, "true", options=["--volume", f"{folder}:{WORK}", "--env", "PUID=4321"]).ok()
    assert owner(sub) == owner(sub / "theirs") == (0, 0)


@pytest.mark.parametrize("target", ["/usr/local/sbin", "/opt/pytorch-cuda/lib"])
def test_a_link_in_the_place_of_the_work_folder_is_never_followed(
    containers: Containers, thin: str, target: str
) -> None:
    """On a volume the user may put a link where root looks at owners and gives folders away."""
    volume = containers.volume()
    container = containers.start(thin, "sleep", "600", options=["--volume", f"{volume}:/workspace"])
    container.wait_for_process("sleep")
    plant = f"rmdir /workspace/code 2>/dev/null; ln -s {target} /workspace/code && readlink /workspace/code"
    assert container.exec("sh", "-c", plant, user="user").ok().out == f"{target}\n"
    before = container.exec("stat", "-c", "%u:%g %a", target).ok().out
    container.restart()
    container.wait_for_process("sleep")
    assert before == "0:0 755\n"
    assert container.exec("stat", "-c", "%u:%g %a", target).ok().out == before
    assert container.exec("sh", "-c", "stat -c %u /proc/$(pgrep -o sleep)").ok().out == "1000\n"


def test_a_mount_behind_a_link_is_never_given_away(containers: Containers, thin: str, folders: Folders) -> None:
    """The engine follows the link and mounts the folder at its target: that is not the mount we know."""
    volume = containers.volume()
    planted = containers.run(
        thin,
        *("sh", "-c", "rmdir code; ln -s /usr/local/sbin code"),
        options=["--volume", f"{volume}:/workspace"],
    )
    planted.ok()
    folder = folders.new((0, 0))
    options = ["--volume", f"{volume}:/workspace", "--volume", f"{folder}:{WORK}"]
    done = containers.run(thin, "sh", "-c", "id -u; grep -c ' /usr/local/sbin ' /proc/self/mountinfo", options=options)
    assert done.ok().out == "1000\n1\n"
    assert owner(folder) == (0, 0)


def test_a_home_volume_is_the_users_and_keeps_what_is_in_it(containers: Containers, thin: str) -> None:
    volume = containers.volume()
    options = ["--volume", f"{volume}:/home/user"]
    write = "echo kept > ~/note; touch ~/.config/mine; stat -c %u ~ ~/note"
    assert containers.run(thin, "sh", "-c", write, options=options).ok().out == "1000\n1000\n"
    again = containers.run(thin, "sh", "-c", "cat ~/note; ls ~/.config", options=options).ok()
    assert again.out.split() == ["kept", "matplotlib", "mine"]


def test_the_homes_skeleton_does_not_replace_the_users_files(containers: Containers, thin: str) -> None:
    volume = containers.volume()
    options = ["--volume", f"{volume}:/home/user"]
    settings = "~/.config/matplotlib/matplotlibrc"
    assert containers.run(thin, "sh", "-c", f"cat {settings}", options=options).ok().out
    containers.run(thin, "sh", "-c", f"echo '# mine' > {settings}", options=options).ok()
    assert containers.run(thin, "sh", "-c", f"cat {settings}", options=options).ok().out == "# mine\n"


def test_git_trusts_the_work_folder_whoever_owns_it(containers: Containers, thin: str, folders: Folders) -> None:
    folder = folders.new((4321, 4321))
    options = ["--volume", f"{folder}:{WORK}", "--workdir", WORK]
    containers.run(thin, "git", "init", "--quiet", options=options).ok()
    status = containers.run(thin, "git", "status", "--short", options=[*options, "--env", "PUID=1000"])
    assert status.ok().out == ""
