"""Locks: one hash a package, the wheel that installers prefer, nothing asked for that is not locked, no address.

That `make lock` gives the same bytes twice is seen by hand (it asks the package index, for minutes); here the part that
is ours is held: choice and order.
"""

from __future__ import annotations

import itertools
import platform
import random
import re
import sysconfig
from typing import Any

import pytest
from packaging import _manylinux, _musllinux, tags
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import lock
from scripts.lock import Wheel

LOCKS = sorted(path.name for path in lock.REQUIREMENTS.glob("**/*.lock"))
FOR_THE_IMAGE = ["python-cu126.lock", "test-image.lock"]
SOURCES = {"python-cu126.lock": "python.in", "test-image.lock": "test-image.in", "dev.lock": "dev.in"}
TAGS = lock.target_tags()

# Each has two wheels of one version for this platform in the CUDA 12.6 set.
DOUBLE = (
    *("nvidia_cuda_cupti_cu12", "nvidia_cuda_runtime_cu12", "nvidia_cufft_cu12", "nvidia_curand_cu12"),
    *("nvidia_cusolver_cu12", "nvidia_cusparse_cu12", "nvidia_nvtx_cu12"),
)


def read(name: str) -> str:
    """A file of requirements/."""
    (path,) = lock.REQUIREMENTS.glob(f"**/{name}")
    return path.read_text(encoding="utf-8")


def asked(name: str) -> list[Requirement]:
    """What a `*.in` asks for."""
    lines = [line.partition("#")[0].strip() for line in read(name).splitlines()]
    return [Requirement(line) for line in lines if line]


def locked(name: str) -> dict[str, set[str]]:
    """Each package of a lock with its versions; in dev.lock a package may have one for each Python."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", read(name)):
        found.setdefault(canonicalize_name(package), set()).add(version)
    return found


def wheel(name: str) -> Wheel:
    """A made-up wheel, whose hash is its name."""
    return Wheel(name, f"hash of {name}")


# ---- the files ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FOR_THE_IMAGE)
def test_every_package_of_the_image_has_exactly_one_hash(name: str) -> None:
    head, *lines = read(name).splitlines()
    assert head + "\n" == lock.HEADER.format(source=SOURCES[name]) and lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][A-Za-z0-9.!]* --hash=sha256:[0-9a-f]{64}", line), line
    packages = [line.partition("==")[0] for line in lines]
    assert len(packages) == len(set(packages)), "a package stands twice"
    assert lines == sorted(lines), "made by hand?"


def test_every_tool_of_the_host_has_its_hashes() -> None:
    head, *_ = read("dev.lock").splitlines()
    assert head + "\n" == lock.HEADER.format(source="dev.in")
    entries = re.split(r"(?m)^(?=[^\s#])", read("dev.lock"))[1:]
    for entry in entries:
        first, *hashes = entry.strip().splitlines()
        assert re.match(r"[a-z0-9._-]+==\S+( ; .+)? \\$", first), first
        assert hashes and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), first


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_what_is_asked_for_is_locked(name: str) -> None:
    found = locked(name)
    for requirement in asked(SOURCES[name]):
        versions = found[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_names_an_address(name: str) -> None:
    text = read(name)
    assert "://" not in text and "@ " not in text
    options = set(re.findall(r"(?m)(?<!\S)--[a-z-]+", text))
    assert options <= {"--hash"}, "an option would choose an index"


def test_the_test_image_adds_to_the_image_and_changes_nothing() -> None:
    image, more = locked("python-cu126.lock"), locked("test-image.lock")
    assert {name: image[name] for name in more if name in image} == {name: more[name] for name in more if name in image}


def test_every_lock_is_known() -> None:
    assert sorted([*SOURCES, "nodejs.lock"]) == LOCKS, "a new lock needs a line in the tests"


def test_the_double_wheels_are_in_the_lock() -> None:
    assert {canonicalize_name(name) for name in DOUBLE} <= set(locked("python-cu126.lock"))


# ---- which wheel ----------------------------------------------------------------------------------------------------
@pytest.fixture
def on_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packaging believe that it runs in the image: x86_64 Linux with its glibc."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "linux-x86_64")
    monkeypatch.setattr(tags, "_32_BIT_INTERPRETER", False)
    monkeypatch.setattr(_manylinux, "_get_glibc_version", lambda: lock.GLIBC)
    monkeypatch.setattr(_manylinux, "_have_compatible_abi", lambda *_: True)
    monkeypatch.setattr(_musllinux, "_get_musl_version", lambda _: None)


def test_the_tags_are_those_of_an_installer(on_the_image: None) -> None:
    """But for plain linux_x86_64, which comes first or last by the installer's version; indexes refuse such files."""
    platforms = [name for name in tags.platform_tags() if name != "linux_x86_64"]
    assert platforms[0] == f"manylinux_2_{lock.GLIBC[1]}_x86_64"
    interpreter = f"cp{lock.PYTHON[0]}{lock.PYTHON[1]}"
    expected = [
        *tags.cpython_tags(lock.PYTHON, [interpreter], platforms),
        *tags.compatible_tags(lock.PYTHON, interpreter, platforms),
    ]
    assert expected == [tag for tag in TAGS if tag.platform != "linux_x86_64"]


@pytest.mark.parametrize("name", DOUBLE)
def test_of_two_wheels_the_one_that_installers_prefer_is_locked(name: str) -> None:
    """manylinux_2_17 comes before manylinux2014, its older name, and a file with both has the better rank."""
    both = wheel(f"{name}-1.2.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl")
    old = wheel(f"{name}-1.2.3-py3-none-manylinux2014_x86_64.whl")
    foreign = wheel(f"{name}-1.2.3-py3-none-manylinux2014_aarch64.whl")
    windows = wheel(f"{name}-1.2.3-py3-none-win_amd64.whl")
    for order in itertools.permutations([both, old, foreign, windows]):
        assert lock.best_wheel(list(order), TAGS) == both


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("x-1-cp313-cp313-manylinux_2_28_x86_64.whl", "x-1-cp313-cp313-manylinux_2_17_x86_64.whl"),
        ("x-1-cp313-cp313-manylinux_2_31_x86_64.whl", "x-1-cp313-cp313-manylinux_2_34_x86_64.whl"),
        ("x-1-cp313-cp313-manylinux1_x86_64.whl", "x-1-cp313-abi3-manylinux_2_28_x86_64.whl"),
        ("x-1-cp313-abi3-manylinux1_x86_64.whl", "x-1-cp39-abi3-manylinux_2_28_x86_64.whl"),
        ("x-1-cp38-abi3-manylinux2014_x86_64.whl", "x-1-py3-none-any.whl"),
        ("x-1-py3-none-manylinux2014_x86_64.whl", "x-1-py3-none-any.whl"),
        ("x-1-py313-none-any.whl", "x-1-py3-none-any.whl"),
        ("x-1-py3-none-any.whl", "x-1-cp313-cp313t-manylinux_2_17_x86_64.whl"),
        ("x-1-py3-none-any.whl", "x-1-cp312-cp312-manylinux_2_17_x86_64.whl"),
        ("x-1-py3-none-any.whl", "x-1-cp313-cp313-musllinux_1_2_x86_64.whl"),
        ("x-1-2-py3-none-any.whl", "x-1-1-py3-none-any.whl"),
        ("x-1-10-py3-none-any.whl", "x-1-9-py3-none-any.whl"),
        ("x-1-1-py3-none-any.whl", "x-1-py3-none-any.whl"),
    ],
)
def test_the_better_wheel_is_taken(better: str, worse: str) -> None:
    for pair in ([better, worse], [worse, better]):
        assert lock.best_wheel([wheel(name) for name in pair], TAGS).filename == better


@pytest.mark.parametrize("name", ["x-1-cp313-cp313-win_amd64.whl", "x-1-cp313-cp313-manylinux_2_35_x86_64.whl"])
def test_a_package_without_a_wheel_for_the_image_stops(name: str) -> None:
    with pytest.raises(SystemExit, match="no wheel for the image's platform") as caught:
        lock.best_wheel([wheel(name)], TAGS)
    assert name in str(caught.value) and "do:" in str(caught.value)


def package(name: str, version: str, *filenames: str) -> dict[str, Any]:
    """An entry of a pylock, as uv writes it."""
    wheels = [{"url": f"https://index.example/a/b/{file}", "hashes": {"sha256": f"hash-{file}"}} for file in filenames]
    return {"name": name, "version": version, "wheels": wheels}


def test_the_lines_are_sorted_and_the_same_each_time() -> None:
    packages = [
        package("b", "2", "b-2-py3-none-any.whl"),
        package("a-b", "1", "a_b-1-py3-none-win_amd64.whl", "a_b-1-py3-none-any.whl"),
        package("a", "1.0", "a-1.0-cp313-cp313-manylinux2014_x86_64.whl", "a-1.0-py3-none-any.whl"),
    ]
    expected = [
        "a-b==1 --hash=sha256:hash-a_b-1-py3-none-any.whl\n",
        "a==1.0 --hash=sha256:hash-a-1.0-cp313-cp313-manylinux2014_x86_64.whl\n",
        "b==2 --hash=sha256:hash-b-2-py3-none-any.whl\n",
    ]
    for seed in range(10):
        shaken = random.Random(seed)
        shuffled = [{**p, "wheels": shaken.sample(p["wheels"], len(p["wheels"]))} for p in packages]
        shaken.shuffle(shuffled)
        assert lock.one_hash_each({"packages": shuffled}, TAGS) == expected


def test_what_is_resolved_depends_on_no_day_and_no_index() -> None:
    """A fixed date, wheels only, and no address in the output: with these uv gives the same file again."""
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", lock.EXCLUDE_NEWER)
    source = (lock.REQUIREMENTS.parent / "scripts" / "lock.py").read_text(encoding="utf-8")
    for option in ("--no-header", "--only-binary", "--exclude-newer", "--generate-hashes"):
        assert f'"{option}"' in source
    assert "--emit-index-url" not in source and "--index" not in source
