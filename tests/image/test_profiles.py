"""Every way to start the image that is promised, with a command, JupyterLab and a training.

Rootless Podman is one more of them: tests/ssh/test_podman.py, in a container of its own.
"""

from __future__ import annotations

import json
import re
import socket

import pytest

from tests.support.containers import Containers, Done, Tracked
from tests.support.folders import Folders, owner
from tests.support.lab import Lab, printed_token
from tests.support.profiles import NOEXEC, PROFILES, STRANGER, Profile

every_profile = pytest.mark.parametrize("profile", PROFILES, ids=str)

# Who a program thinks it is, by all the ways in which programs ask.
WHO = """
import getpass, grp, json, os, pwd, pathlib
home = pathlib.Path.home()
(home / "written").write_text("")
me = pwd.getpwuid(os.getuid())
print(json.dumps({"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "user": getpass.getuser(),
    "passwd": [me.pw_name, me.pw_uid, me.pw_dir], "home": str(home), "group": grp.getgrgid(os.getgid()).gr_gid,
    "env": [os.environ[name] for name in ("HOME", "USER", "LOGNAME")]}))
"""


def check_words(said: str, profile: Profile) -> None:
    """The start says what the profile promises, one line each, and nothing else."""
    lines = [line for line in said.splitlines() if line.startswith("pytorch-cuda: ")]
    for pattern in profile.says:
        assert len([line for line in lines if re.search(pattern, line)]) == 1, f"wanted once: {pattern}\n{said}"
    assert len(lines) == len(profile.says), f"wanted only {profile.says}:\n{said}"


@every_profile
def test_a_command_runs_as_the_user_with_a_name_and_a_home(containers: Containers, thin: str, profile: Profile) -> None:
    done = containers.run(thin, "python", "-c", WHO, options=profile.options).ok()
    seen = json.loads(done.out)
    assert (seen["uid"], seen["gid"], seen["group"]) == (profile.uid, profile.gid, profile.gid)
    assert seen["user"] == profile.user
    assert seen["passwd"][:2] == [profile.user, profile.uid]
    assert seen["home"] == profile.home
    assert seen["env"] == [profile.home, profile.user, profile.user]
    check_words(done.err, profile)


def test_groups_given_by_the_engine_are_kept(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "id", "-G", options=["--group-add", "4242"]).ok()
    assert sorted(map(int, done.out.split())) == [0, 1000, 4242]


def test_no_capability_is_left_to_the_user(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "grep", "-E", "^Cap(Inh|Prm|Eff|Amb)", "/proc/self/status").ok()
    assert set(re.findall(r"[0-9a-f]{16}", done.out)) == {"0" * 16}, done.out


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@every_profile
def test_jupyterlab_answers_and_its_kernel_is_the_user(containers: Containers, image: str, profile: Profile) -> None:
    port = free_port() if profile.name == "network-host" else 8888
    network = () if "--network" in profile.options else ("--publish", "127.0.0.1::8888")
    container = containers.start(
        image,
        options=[*profile.options, *network, "--env", f"JUPYTER_PORT={port}"],
        expect=profile.says,
    )
    if profile.name == "network-none":
        assert answer_inside(container, port).out == "True"
        return
    if profile.name == "network-host":
        container.wait_for_line("JupyterLab: ")
        lab = Lab(f"http://127.0.0.1:{port}/", printed_token(container), container)
        lab.wait()
    else:
        lab = Lab.of(container)
    who = json.loads(lab.run(WHO))
    assert (who["uid"], who["gid"], who["user"], who["home"]) == (profile.uid, profile.gid, profile.user, profile.home)
    if NOEXEC not in profile.says and STRANGER[0] not in profile.says:
        lab.write("note.txt", "written")


def answer_inside(container: Tracked, port: int) -> Done:
    """Ask from inside, where there is no network to ask through."""
    container.wait_for_line("JupyterLab: ")
    code = f"""
import time, urllib.request
for _ in range(300):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:{port}/api", timeout=5).status == 200, end="")
        break
    except OSError:
        time.sleep(0.2)
"""
    return container.exec("python", "-c", code).ok()


@every_profile
def test_a_training_leaves_its_results_with_the_users_owner(
    containers: Containers, image: str, profile: Profile, folders: Folders
) -> None:
    out = folders.new(mode=0o777)
    done = containers.run(
        image,
        *("train", "--limit", "500", "--epochs", "1", "--out", "/out/run"),
        options=[*profile.options, "--volume", f"{out}:/out"],
        budget="a short training",
    ).ok()
    metrics = json.loads((out / "run/metrics.json").read_text())
    assert 0 <= metrics["test_accuracy"] <= 1
    assert (out / "run/metrics.jsonl").read_text().count("\n") == 1
    assert list((out / "run").glob("*.png")), done
    assert owner(out / "run/metrics.json")[0] == profile.uid
