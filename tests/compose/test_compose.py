"""`docker compose up` is healthy in every mode; down and up keep home, host keys and notebooks; `make ssh` gets in."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest

from scripts import compose, keys, names, ssh
from scripts import container as containers_of_make
from scripts.engine import ensure_engine
from tests.support.containers import Containers, Done, Tracked, call
from tests.support.folders import Folders
from tests.support.lab import Lab
from tests.support.wait import until

pytestmark = pytest.mark.slow
# The image's own check, asked more often: in use it is asked every 30 s.
OFTEN = "services:\n  lab:\n    healthcheck:\n      interval: 1s\n      start_period: 60s\n"
# As docs/compose.md has it.
WITH_SECRET = """
    environment:
      - JUPYTER_TOKEN_FILE=/run/secrets/jupyter_token
    secrets:
      - jupyter_token
secrets:
  jupyter_token:
    file: ./token.txt
"""


class Project:
    """A project folder of its own with the repository's compose files, on free ports."""

    def __init__(self, image: str, folders: Folders, containers: Containers) -> None:
        self.folder = folders.new(owner=(os.getuid(), os.getgid()), mode=0o755)
        self.name = f"pytorch-cuda-tests-{uuid.uuid4().hex[:8]}"
        self.ports = free_port(), free_port()
        self._containers = containers
        self._tracked: Optional[Tracked] = None
        (self.folder / "often.yml").write_text(OFTEN)
        self._environ = {
            **without_settings(),
            "IMAGE": image,
            "NAME": self.name,
            "PORT": str(self.ports[0]),
            "SSH_PORT": str(self.ports[1]),
        }

    def env_file(self, text: str) -> None:
        """Write .env, byte for byte."""
        (self.folder / ".env").write_bytes(text.encode())

    def compose(self, *arguments: str) -> Done:
        """Run compose with the files for a machine without a GPU."""
        files = [f"--file={path}" for path in (compose.FILE, compose.WITHOUT_GPU, self.folder / "often.yml")]
        where = [f"--project-directory={self.folder}", f"--project-name={self.name}"]
        line = ["docker", "compose", *where, *files, *arguments]
        return call(*line, budget="docker compose", environ=self._environ)

    def up(self) -> Tracked:
        """Bring it up, and wait until it is healthy."""
        done = self.compose("up", "--detach").ok()
        assert "warn" not in done.err.lower(), done
        if self._tracked:
            self._tracked.gone = True  # compose put another in its place
        self._tracked = tracked = self._containers.adopt(self.name)

        def healthy() -> bool:
            state = tracked.state
            assert state["Running"], tracked.log()
            # A check before the start is through finds no service expected, which is healthy too.
            return state["Health"]["Status"] == "healthy" and "no service" not in state["Health"]["Log"][-1]["Output"]

        until("docker compose", healthy, lambda: f"{tracked.state}\n{tracked.log()}", pause=0.5)
        return tracked


def without_settings() -> dict[str, str]:
    """The environment without what would change compose's files or our settings."""
    ours = {*containers_of_make.VALUES, *containers_of_make.FILES, "PUID", "PGID", "BIND", "SHM_SIZE"}
    return {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("COMPOSE_")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def project(image: str, folders: Folders, shared_containers: Containers) -> Iterator[Project]:
    project = Project(image, folders, shared_containers)
    try:
        yield project
    finally:
        project.compose("down", "--volumes", "--timeout", "10").ok()


@pytest.fixture(scope="module")
def key(image: str, folders: Folders, shared_containers: Containers) -> Path:
    """A private key of uid 1000, its public half beside it: made by the image's own ssh-keygen."""
    folder = folders.new((1000, 1000))
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/mnt/id_ed25519"]
    shared_containers.run(image, *keygen, options=[f"--volume={folder}:/mnt"]).ok()
    return folder / "id_ed25519"


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text().strip()


def checked(tracked: Tracked) -> str:
    """What the health check said last."""
    return str(tracked.state["Health"]["Log"][-1]["Output"]).strip()


# `auto` comes with an .env as Windows saves it; the others by the order in which the container is made anew.
MODES = {
    "no .env": ("", "healthy: jupyter"),
    "jupyter": ("MODE=jupyter\r\nTZ=Asia/Shanghai\r\n", "healthy: jupyter"),
    "ssh": ("MODE=ssh\nSSH_PUBLIC_KEY={key}\n", "healthy: sshd"),
    "all": ('MODE=all\nSSH_PUBLIC_KEY="{key}"\nJUPYTER_BASE_URL=/lab1\n', "healthy: jupyter, sshd"),
}


@pytest.mark.parametrize("mode", MODES)
def test_it_is_healthy_in_every_mode(project: Project, key: Path, mode: str) -> None:
    text, said = MODES[mode]
    if text:
        project.env_file(text.format(key=public(key)))
    tracked = project.up()
    assert sorted(checked(tracked).split(": ")[1].split(", ")) == sorted(said.split(": ")[1].split(", "))
    if "TZ" in text:
        assert tracked.exec("sh", "-c", 'test "$TZ" = Asia/Shanghai', user="user").ok()


def test_down_and_up_keep_home_host_keys_and_notebooks(project: Project, key: Path) -> None:
    project.env_file(f"MODE=all\nSSH_PUBLIC_KEY={public(key)}\nJUPYTER_TOKEN=given-by-env-file\n")
    before = project.up()
    Lab.of(before, "given-by-env-file").write("beside.ipynb", "{}")
    Lab.of(before, "given-by-env-file").write("code/inside.ipynb", "{}")
    before.exec("sh", "-c", "mkdir ~/.vscode-server && touch ~/.vscode-server/kept", user="user").ok()
    host_keys = before.exec("sh", "-c", f"cat {ssh.HOST_KEYS}/*.pub").ok().out
    project.compose("down").ok()
    after = project.up()
    assert after.id != before.id
    assert after.exec("sh", "-c", f"cat {ssh.HOST_KEYS}/*.pub").ok().out == host_keys
    after.exec("ls", "/home/user/.vscode-server/kept", "/workspace/beside.ipynb").ok()
    assert (project.folder / "code" / "inside.ipynb").is_file()
    assert Lab.of(after, "given-by-env-file").lets_in()


def test_a_token_from_a_secrets_file_is_shown_nowhere(project: Project) -> None:
    (project.folder / ".env").unlink()
    secret = "from-a-file-of-composes"
    (project.folder / "token.txt").write_text(f"{secret}\n")
    (project.folder / "token.txt").chmod(0o600)
    (project.folder / "often.yml").write_text(OFTEN + WITH_SECRET)
    try:
        tracked = project.up()
    finally:
        (project.folder / "often.yml").write_text(OFTEN)
    assert Lab.of(tracked, secret).lets_in()
    assert secret not in str(tracked.inspect()) + tracked.log()


def test_ports_are_on_the_loopback_and_dev_shm_is_large(project: Project, key: Path) -> None:
    project.env_file(f"MODE=all\nSSH_PUBLIC_KEY={public(key)}\n")
    tracked = project.up()
    published = tracked.inspect()["NetworkSettings"]["Ports"]
    assert {row["HostIp"] for rows in published.values() for row in rows or []} == {"127.0.0.1"}
    size = tracked.exec("df", "--block-size=1M", "--output=size", "/dev/shm").ok().out.split()[-1]
    assert int(size) == 2048


def test_what_make_ssh_learns_from_the_container_logs_in(
    project: Project, key: Path, image: str, containers: Containers, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.env_file(f"MODE=ssh\nSSH_PUBLIC_KEY={public(key)}\n")
    project.up()
    engine = ensure_engine()
    found = containers_of_make.find(engine, project.name)
    assert found
    monkeypatch.setattr(keys, "folder", lambda: key.parent)
    door = ssh.find_door(engine, found)
    assert (door.here, door.port, door.identity) == ("127.0.0.1", project.ports[1], key)
    folder = folders.new()
    entry = ssh.config(door, {}).replace(str(key), "/key/id_ed25519")
    folders.file(folder / "config", f"{entry}\n    UserKnownHostsFile /mnt/known_hosts\n")
    folders.file(folder / "known_hosts", ssh.remember(engine, door).read_text())
    mounts = [f"--volume={folder}:/mnt:ro", f"--volume={key.parent}:/key:ro", "--network=host"]
    log_in = ["ssh", "-F", "/mnt/config", "-o", "BatchMode=yes", project.name, "id -un; which python"]
    done = containers.run(image, *log_in, options=mounts).ok()
    assert done.out.split() == ["user", "/opt/conda/envs/pytorch/bin/python"]


def test_make_up_and_make_down_say_what_they_chose_and_keep(
    image: str, key: Path, folders: Folders, containers: Containers
) -> None:
    """In a copy of the checkout, so that neither its .env nor its ./code is touched."""
    checkout = folders.new() / "checkout"
    left_out = shutil.ignore_patterns(
        ".git", ".venv", ".env", "build", "code", "docs", "tests", "docker-compose.o*", "*_cache"
    )
    shutil.copytree(names.ROOT, checkout, ignore=left_out)
    name, ports = f"pytorch-cuda-tests-{uuid.uuid4().hex[:8]}", (free_port(), free_port())
    (checkout / ".env").write_bytes(b"JUPYTER_TOKEN=from-env-file\r\n")
    environ = {
        **without_settings(),
        **{"NAME": name, "COMPOSE_PROJECT_NAME": name, "IMAGE": image, "PYTHON": sys.executable},
        **{"PORT": str(ports[0]), "SSH_PORT": str(ports[1]), "SSH_PUBLIC_KEY": public(key)},
    }

    def make(target: str) -> Done:
        return call("make", "-C", str(checkout), target, budget="docker compose", environ=environ)

    try:
        up = make("up").ok()
        containers.adopt(name)
        assert "CR LF" in up.out and "from-env-file" not in up.out
        assert f"Image: {image}" in up.out and "docker-compose.yml" in up.out
        assert f"http://127.0.0.1:{ports[0]}/lab" in up.out
        entry = make("ssh-config").ok().out
        assert f"Port {ports[1]}\n" in entry and "User user\n" in entry
        make("up").ok()  # a second time changes nothing
    finally:
        down = make("down")
        call("docker", "volume", "rm", *(f"{name}_{volume}" for volume in ("home", "host-keys", "workspace")))
    assert f"{name}_home" in down.ok().out and (checkout / "code").is_dir()
