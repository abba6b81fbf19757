"""The keys by which a client knows the server again: nobody else's, printed, and kept by a volume."""

from __future__ import annotations

import re

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders
from tests.support.laptop import Laptop, Servers

PLACE = "/etc/ssh/host_keys"
CANNOT_KEEP = rf"warning: the host keys cannot be kept in {PLACE}"


def printed(container: Tracked) -> set[str]:
    """The fingerprints in the log of its last start."""
    return set(re.findall(r"host key \w+ (SHA256:\S+)", container.log().rpartition("pytorch-cuda: sshd:")[2]))


def scanned(laptop: Laptop, container: Tracked) -> set[str]:
    """What a client that asks for the keys gets, as fingerprints."""
    scan = laptop.sh(f"ssh-keyscan {container.address} 2>/dev/null | ssh-keygen -lf - | cut -d' ' -f2").ok()
    return set(scan.out.split())


def test_two_fresh_containers_have_different_keys_and_print_them(laptop: Laptop, servers: Servers, thin: str) -> None:
    one, other = (servers.start(thin, own_host_keys=True) for _ in range(2))
    assert len(printed(one)) == 2
    assert printed(one) == scanned(laptop, one)
    assert printed(other) == scanned(laptop, other)
    assert not printed(one) & printed(other)


def test_a_volume_keeps_them_for_the_next_container(
    containers: Containers, laptop: Laptop, servers: Servers, thin: str
) -> None:
    volume = f"{containers.volume()}:{PLACE}"
    one = servers.start(thin, "--volume", volume)
    before = printed(one)
    assert one.exec("sh", "-c", f"stat -c '%u %a' {PLACE}/*").ok().out == "0 600\n0 600\n"
    one.remove()
    other = servers.start(thin, "--volume", volume)
    assert printed(other) == before == scanned(laptop, other)


@pytest.mark.parametrize("owner", [(1000, 1000), (4321, 4321)])
def test_a_folder_of_the_host_keeps_them_too_whoever_owns_it(
    folders: Folders, servers: Servers, lean: str, owner: tuple[int, int]
) -> None:
    folder = folders.new(owner)
    volume = f"{folder}:{PLACE}"
    one = servers.start(lean, "--volume", volume)
    before = printed(one)
    one.remove()
    # As after `chown -R` and `chmod -R` on the host: the keys must not become readable for the user.
    for key in folder.iterdir():
        folders.give(key, owner)
    other = servers.start(lean, "--volume", volume)
    assert printed(other) == before
    assert other.exec("sh", "-c", "cat /run/pytorch-cuda/host_keys/*_key", user="user").code != 0


def test_keys_as_kubernetes_mounts_them(laptop: Laptop, folders: Folders, servers: Servers, lean: str) -> None:
    folder = folders.new((0, 0))
    inner = folder / "..2026_12_01"
    inner.mkdir(mode=0o755)
    for kind in ("ed25519", "rsa"):
        name = f"ssh_host_{kind}_key"
        make = f"rm -f /tmp/{name}*; ssh-keygen -q -t {kind} -N '' -f /tmp/{name} && cat /tmp/{name}"
        folders.file(inner / name, laptop.sh(make).ok().out, 0o444, (0, 0))
        (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data").symlink_to(inner.name)
    container = servers.start(lean, "--volume", f"{folder}:{PLACE}:ro")
    expected = laptop.sh("for k in /tmp/ssh_host_*_key; do ssh-keygen -lf $k; done | cut -d' ' -f2").ok().out.split()
    assert printed(container) == set(expected) == scanned(laptop, container)


def test_a_volume_that_cannot_be_written_is_said_and_sshd_runs(
    laptop: Laptop, folders: Folders, servers: Servers, lean: str
) -> None:
    container = servers.start(lean, "--volume", f"{folders.new()}:{PLACE}:ro", expect=(CANNOT_KEEP,))
    laptop.ssh(container, "true").ok()
    assert len(printed(container)) == 2


def test_a_damaged_key_stops_ssh_with_the_name_of_the_file(
    containers: Containers, lean: str, laptop: Laptop, folders: Folders
) -> None:
    folder = folders.new()
    folders.file(folder / "ssh_host_rsa_key", "hunter2", 0o600, (0, 0))
    options = ["--volume", f"{folder}:{PLACE}", "--env", f"SSH_PUBLIC_KEY={laptop.public}"]
    done = containers.run(lean, "ssh", options=options).ended(64)
    assert f"seen: {PLACE}/ssh_host_rsa_key: ssh-keygen does not take it" in done.err
    assert "hunter2" not in done.err


@pytest.mark.parametrize("which", ["image", "thin"])
def test_no_key_is_in_the_image(containers: Containers, thin: str, image: str, which: str) -> None:
    """Neither by name nor by content, in what all the layers make; a layer below it is looked at by docker history."""
    look = (
        "find / -xdev \\( -name 'ssh_host_*' -o -name 'authorized_keys' -o -name 'id_*' \\) -type f 2>/dev/null;"
        " grep -rlE 'BEGIN [A-Z ]*PRIVATE KEY' /etc /root /home /run /opt/pytorch-cuda /var/lib 2>/dev/null; true"
    )
    options = ["--entrypoint", "/bin/sh"]
    done = containers.run(image if which == "image" else thin, "-c", look, options=options).ok()
    assert [line for line in done.out.splitlines() if "/opt/conda" not in line] == []
