"""The shared libraries of the wheels: each mapped once, and none newer than the oldest glibc that the image meets."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.support.containers import Containers

OLDEST_GLIBC = (2, 31)  # Ubuntu 20.04's
MAPS = """
import torch, torchvision, torchaudio
assert torch.backends.cudnn.version() == 90501, torch.backends.cudnn.version()
print(open("/proc/self/maps").read())
"""
CUDA = re.compile(r"lib(cu|nv|nccl)\w+")


def test_no_cuda_library_is_mapped_from_two_places(containers: Containers, image: str) -> None:
    done = containers.run(image, "python", "-c", MAPS, budget="a program that loads torch").ok()
    places = defaultdict(set)
    for path in re.findall(r"(/\S+\.so[\w.]*)$", done.out, re.MULTILINE):
        family = re.match(r"(lib[\w-]+?)(-[0-9a-f]{8})?\.so", path.rpartition("/")[2])
        if family and CUDA.match(family[1]):
            places[family[1]].add(path)
    assert len(places) > 8, f"this is not what torch maps: {sorted(places)}"
    assert {name: sorted(paths) for name, paths in places.items() if len(paths) > 1} == {}
    assert [path.rpartition("/")[2] for path in places["libcudnn"]] == ["libcudnn.so.9"]


def test_no_variable_of_the_image_sends_the_loader_elsewhere(containers: Containers, image: str) -> None:
    done = containers.run(image, "env").ok()
    assert not re.search(r"^(LD_LIBRARY_PATH|LD_PRELOAD)=", done.out, re.MULTILINE)


def test_every_library_binds_on_the_oldest_glibc(containers: Containers, glibc_image: str, image: str) -> None:
    """glibc_check.py ran on Debian 11 (glibc 2.31) while the image `glibc-check` was built; this is its report."""
    report = containers.run(glibc_image, "cat", "/glibc-check.txt").ok().out
    assert re.search(r"^findings: 0$", report, re.MULTILINE), report
    files = re.search(r"^files looked at: (\d+)$", report, re.MULTILINE)
    assert files, report
    count = "find /opt/conda/envs/pytorch -type f -name '*.so*' | wc -l"
    assert int(files[1]) >= int(containers.run(image, "sh", "-c", count).ok().out) * 0.95, report
    highest = re.search(r"^highest GLIBC needed: ([\d.]+)$", report, re.MULTILINE)
    assert highest, report
    print(report)
    assert tuple(map(int, highest[1].split("."))) <= OLDEST_GLIBC


def test_the_oldest_glibc_image_has_that_glibc(containers: Containers, glibc_image: str) -> None:
    said = containers.run(glibc_image, "ldd", "--version").ok().out.splitlines()[0]
    assert said.endswith(" 2.31")
