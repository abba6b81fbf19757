"""Rootless Podman, where uid 0 inside is the caller: a real one, for a user of a container of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.containers import Containers, Done, Tracked, call
from tests.support.wait import until

# From the distribution, so that no engine of this machine is touched. cgroup v1 has no systemd to ask here.
INSTALL = """
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qqy --no-install-recommends podman uidmap passt netavark aardvark-dns crun
useradd --create-home --uid 2000 ann
echo ann:100000:65536 | tee /etc/subuid >/etc/subgid
install -d -o ann -g ann /run/user/2000 /home/ann/.config/containers /home/ann/code
printf '[containers]\ndefault_ulimits=[]\n[engine]\ncgroup_manager="cgroupfs"\nevents_logger="file"\n' \
    >/home/ann/.config/containers/containers.conf
ssh-keygen -q -t ed25519 -N '' -f /home/ann/key
chown -R ann:ann /home/ann
chmod 0666 /dev/net/tun
"""
SSH = (
    "ssh -F none -o BatchMode=yes -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o LogLevel=ERROR"
    " -i key -p 2222"
)
CALLER, FIRST_SUBORDINATE = 2000, 100000


class Podman:
    """The engine of the user `ann`."""

    def __init__(self, machine: Tracked, image: str) -> None:
        self._machine = machine
        self.image = image

    def sh(self, script: str, budget: str = "a command") -> Done:
        """A script of that user's."""
        environ = "cd; export XDG_RUNTIME_DIR=/run/user/2000 PODMAN_IGNORE_CGROUPSV1_WARNING=1"
        return self._machine.exec("su", "ann", "-c", f"{environ}; {script}", budget=budget)

    def start(self, *options: str) -> None:
        """Start the image with sshd, and wait until it listens."""
        self.sh("podman rm -f -t0 c; rm -rf code/*; true").ok()
        line = shlex.join(["podman", "run", "-d", "--name", "c", "-p", "2222:22", *options])
        key = '-e SSH_PUBLIC_KEY="$(cat key.pub)" -v ./code:/workspace/code'
        self.sh(f"{line} {key} {self.image} ssh").ok()
        until("a line in the log", lambda: "listening on" in self.log or None, lambda: self.log)

    @property
    def log(self) -> str:
        return self.sh("podman logs c 2>&1").out

    def ssh(self, command: str, user: str = "user", options: str = "") -> Done:
        """Log in from the machine on which that Podman runs."""
        return self.sh(f"{SSH} {options} {user}@127.0.0.1 {shlex.quote(command)}")

    def owner(self, name: str) -> int:
        """Whose a file in the mounted folder is, outside."""
        return int(self.sh(f"stat -c %u code/{name}").ok().out)


@pytest.fixture(scope="module")
def podman(client: Any, shared_containers: Containers, lean: str) -> Iterator[Podman]:
    """A machine with Podman that has the image."""
    storage = f"{shared_containers.volume()}:/home"  # overlay does not lie on overlay
    options = ["--privileged", "--volume", storage, "--entrypoint", "/bin/busybox"]
    machine = shared_containers.start(lean, "sleep", "3600", options=options)
    machine.exec("bash", "-s", stdin=INSTALL.encode(), budget="installing Podman").ok()
    engine = Podman(machine, lean)
    load = f"docker save {lean} | docker exec -i {machine.id} su ann -c 'XDG_RUNTIME_DIR=/run/user/2000 podman load'"
    call("sh", "-c", load, budget="installing Podman").ok()
    yield engine


@pytest.mark.parametrize("options", [(), ("--read-only", "--tmpfs", "/run", "--tmpfs", "/tmp")])
def test_the_user_is_the_caller_and_root_stays_out(podman: Podman, options: tuple[str, ...]) -> None:
    podman.start(*options, "-e", "AWKWARD=a b#c", "-e", "GRANT_SUDO=1")
    done = podman.ssh("id -u; whoami; echo $AWKWARD; command -v python; touch /workspace/code/mine ~/mine").ok()
    assert done.out.split("\n")[:4] == ["0", "user", "a b#c", "/opt/conda/envs/pytorch/bin/python"]
    assert podman.owner("mine") == CALLER
    assert "/dev/pts" in podman.ssh("tty", options="-tt").ok().out
    assert "Permission denied (publickey)" in podman.ssh("true", user="root").ended(255).err
    assert "PermitRootLogin prohibit-password" in podman.sh("podman exec c cat /run/pytorch-cuda/sshd_config").ok().out
    assert "ssh gives no terminal" not in podman.log
    assert podman.sh("podman stop c && podman inspect -f '{{.State.ExitCode}}' c").ok().out.split()[-1] == "0"


def test_puid_is_one_of_the_callers_subordinate_ids(podman: Podman) -> None:
    podman.start("-e", "PUID=1000")
    podman.sh("chmod 777 code").ok()
    assert podman.ssh("id -u; touch /workspace/code/theirs").ok().out == "1000\n"
    assert podman.owner("theirs") == FIRST_SUBORDINATE + 999
    podman.sh("podman unshare rm -f code/theirs").ok()


def test_a_start_with_user_is_refused_with_a_remedy_for_this_engine(podman: Podman) -> None:
    run = f'podman run --rm --user 12345:0 -e SSH_PUBLIC_KEY="$(cat key.pub)" {podman.image} ssh'
    do = podman.sh(run).ended(64).err.strip().splitlines()[-1]
    assert re.fullmatch(r"  do:   leave --user out; in a rootless engine uid 0 is you", do)
