"""The .pyc files of the image are valid: importing compiles nothing again (it would cost seconds at every start)."""

from __future__ import annotations

import pytest

from tests.support.containers import Containers

# Compares each .pyc with its source as the interpreter does: no flags (timestamp-checked), then time and size.
VALID = """
import importlib.util, os, struct, sys, sysconfig
stale, missing, fine = [], [], 0
for folder in sys.argv[1:] or [sysconfig.get_path("purelib")]:
    for parent, _, names in os.walk(folder):
        for name in (n for n in names if n.endswith(".py")):
            source = os.path.join(parent, name)
            try:
                with open(importlib.util.cache_from_source(source), "rb") as file:
                    head = file.read(16)
            except FileNotFoundError:
                missing.append(source)
                continue
            seen = os.stat(source)
            same = head[:4] == importlib.util.MAGIC_NUMBER and struct.unpack("<III", head[4:]) == (
                0, int(seen.st_mtime) & 0xFFFFFFFF, seen.st_size & 0xFFFFFFFF)
            fine += same
            if not same:
                stale.append(source)
print(fine, len(stale), len(missing))
print(*stale[:20], *missing[:60], sep="\\n")
"""


@pytest.fixture(scope="module")
def environment_bytecode(shared_containers: Containers, image: str) -> list[str]:
    return shared_containers.run(image, "python", "-I", "-c", VALID).ok().out.splitlines()


def test_every_pyc_of_the_environment_is_valid(environment_bytecode: list[str]) -> None:
    fine, stale, missing = map(int, environment_bytecode[0].split())
    assert fine > 10_000
    assert stale == 0, environment_bytecode
    # Templates and files for other Pythons, which do not compile.
    assert missing < 30, environment_bytecode


def test_every_pyc_of_ours_is_valid(containers: Containers, thin: str) -> None:
    for python, folder in (
        ("/opt/pytorch-cuda/python", "/opt/pytorch-cuda/lib"),
        ("/opt/conda/envs/pytorch/bin/python", "/opt/pytorch-cuda/site"),
    ):
        first, *rest = containers.run(thin, python, "-I", "-c", VALID, folder).ok().out.splitlines()
        fine, stale, missing = map(int, first.split())
        assert fine > 5
        assert (stale, missing) == (0, 0), rest


def test_importing_and_starting_write_nothing_into_the_image(containers: Containers, image: str) -> None:
    code = "import torch, torchvision, torchaudio, jupyterlab.labapp, ipykernel, matplotlib.pyplot, pandas, pinfeed"
    container = containers.start(image, "python", "-c", code)
    assert container.wait() == 0, container.log()
    written = [entry["Path"] for entry in container.container.diff()]
    assert [path for path in written if path.startswith("/opt/")] == []
