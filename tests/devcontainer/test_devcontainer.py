"""The dev-container CLI brings .devcontainer/devcontainer.json up and runs a command in it, as the folder's owner."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import names, node
from tests.support.containers import Containers, Done, Tracked, call
from tests.support.folders import Folders, owner

pytestmark = pytest.mark.slow
OWNER = (4321, 20)  # gid 20 is a group of the image's, as on a Mac


class DevContainer:
    """One workspace with our devcontainer.json, and the CLI for it."""

    def __init__(self, workspace: Path, image: str) -> None:
        self.workspace = workspace
        packages = node.install(names.ROOT / "requirements" / "devcontainer", names.LOGS / "devcontainer-cli")
        self._program = [str(node.ensure_node()), str(packages / "@devcontainers" / "cli" / "devcontainer.js")]
        repository, _, tag = image.partition(":")
        assert repository == "pytorch-cuda", f"devcontainer.json names pytorch-cuda:TAG, and --image is {image}"
        self._environ = {**os.environ, "PYTORCH_CUDA_TAG": tag}

    def cli(self, command: str, *arguments: str) -> Done:
        """Run one command of the CLI for the workspace."""
        where = ("--workspace-folder", str(self.workspace))
        line = [*self._program, command, *where, *arguments]
        return call(*line, budget="the dev-container CLI", environ=self._environ).ok()

    def exec(self, script: str) -> str:
        """Run a shell line inside, as VS Code runs its own programs."""
        return self.cli("exec", "sh", "-c", script).out.strip()


@pytest.fixture(scope="module")
def started(image: str, folders: Folders, shared_containers: Containers) -> Iterator[tuple[DevContainer, Tracked]]:
    workspace = folders.new()
    shutil.copytree(names.ROOT / ".devcontainer", workspace / ".devcontainer")
    folders.give(workspace, OWNER)
    lab = DevContainer(workspace, image)
    answer: dict[str, Any] = json.loads(lab.cli("up").out)
    tracked = shared_containers.adopt(answer["containerId"])
    assert (answer["outcome"], answer["remoteUser"]) == ("success", "user"), answer
    volume = next(mount["Name"] for mount in tracked.inspect()["Mounts"] if mount["Destination"] == "/home/user")
    try:
        yield lab, tracked
    finally:
        tracked.remove()
        call("docker", "volume", "rm", volume).ok()


def test_a_command_runs_as_the_user_with_the_id_of_the_folders_owner(started: tuple[DevContainer, Tracked]) -> None:
    lab, _ = started
    assert lab.exec("id -un; id -u; id -g; pwd; echo $HOME").split() == [
        "user",
        *map(str, OWNER),
        "/workspace/code",
        "/home/user",
    ]
    lab.exec("echo hello > from-inside; touch ~/kept")
    assert owner(lab.workspace / "from-inside") == OWNER


def test_it_has_the_images_environment(started: tuple[DevContainer, Tracked]) -> None:
    lab, _ = started
    seen = lab.exec(
        "command -v python; python -c 'import torch; print(torch.__version__)'; df -k --output=size /dev/shm"
    )
    python, torch, _, shm = seen.split()
    assert python == "/opt/conda/envs/pytorch/bin/python" and torch.startswith("2.7.1") and int(shm) >= 2 * 1024**2


def test_the_entrypoint_ran_and_its_services_are_up(started: tuple[DevContainer, Tracked]) -> None:
    lab, tracked = started
    tracked.wait_for_line(r"JupyterLab: http://127\.0\.0\.1:8888/lab")
    code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8888/api', timeout=30).status)"
    assert lab.exec(f'python -c "{code}"') == "200"
