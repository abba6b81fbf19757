"""The build step that gives big directories layers of their own, on a small made-up tree."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.static.test_guards import load

split = load("scripts/build/split_layers.py")
LAYERS = [*split.IN_SITE_PACKAGES, "conda", "packages"]

# File in site-packages -> the layer in which it must end.
SITE = {
    "nvidia/__init__.py": "nvidia",
    "nvidia/cudnn/lib/libcudnn.so.9": "cudnn",
    "nvidia/cublas/lib/libcublas.so.12": "cublas",
    "nvidia/nccl/lib/libnccl.so.2": "nvidia",
    "cusparselt/lib/libcusparseLt.so.0": "nvidia",
    "torch/lib/libtorch_cuda.so": "torch",
    "torchgen/a.py": "torch",
    "functorch/a.py": "torch",
    "torchvision/a.py": "torch",
    "torchvision.libs/a.so": "torch",
    "torchaudio/a.py": "torch",
    "triton/a.py": "triton",
    "torch-2.7.1.dist-info/RECORD": "packages",
    "numpy/__init__.py": "packages",
    "pytorch-cuda.pth": "packages",
}
ELSEWHERE = {
    "envs/pytorch/bin/jupyter": "packages",
    "envs/pytorch/share/jupyter/lab/index.html": "packages",
    "envs/pytorch/conda-meta/history": "packages",
    "bin/conda": "conda",
    "lib/libz.so": "conda",
    ".condarc": "conda",
}
LINKS = {
    "envs/pytorch/bin/python": ("/usr/bin/python3", "packages"),
    "envs/pytorch/lib64": ("lib", "packages"),
    "lib/libz.so.1": ("libz.so", "conda"),
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An /opt/conda in a folder; what it holds is its own name."""
    conda = tmp_path / "opt" / "conda"
    site = "envs/pytorch/lib/python3.13/site-packages"
    for name in [*(f"{site}/{name}" for name in SITE), *ELSEWHERE]:
        (conda / name).parent.mkdir(parents=True, exist_ok=True)
        (conda / name).write_text(name)
        (conda / name).chmod(0o664)
    (conda / "envs/pytorch/bin/jupyter").chmod(0o775)
    for name, (target, _) in LINKS.items():
        (conda / name).symlink_to(target)
    for folder in [conda / "envs/pytorch", *(conda / "envs/pytorch").rglob("*")]:
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o2775)
    conda.chmod(0o755)
    monkeypatch.setattr(split, "CONDA", conda)
    monkeypatch.setattr(split, "ENVIRONMENT", conda / "envs/pytorch")
    monkeypatch.setattr(split, "LAYERS", tmp_path / "layers")
    return tmp_path


def listing(root: Path) -> dict[str, tuple[str, int, float]]:
    """Every file and link below a folder: what it holds, its mode, its time."""
    found = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[path.relative_to(root).as_posix()] = (f"-> {path.readlink()}", 0, 0.0)
        elif path.is_file():
            seen = path.stat()
            found[path.relative_to(root).as_posix()] = (path.read_text(), stat.S_IMODE(seen.st_mode), seen.st_mtime)
    return found


def mode_and_time(folder: Path) -> tuple[str, float]:
    """What a layer must keep of a folder; the mode is read as a person writes it."""
    seen = folder.stat()
    return oct(stat.S_IMODE(seen.st_mode)), seen.st_mtime


def in_layers(tree: Path) -> dict[str, dict[str, tuple[str, int, float]]]:
    """The contents of each layer, by their paths below /opt/conda."""
    inside = (tree / "opt" / "conda").relative_to("/")
    return {layer: listing(tree / "layers" / layer / inside) for layer in LAYERS}


def test_every_file_ends_in_exactly_one_layer(tree: Path) -> None:
    before = listing(tree / "opt" / "conda")
    split.main()
    layers = in_layers(tree)
    found = [name for layer in layers.values() for name in layer]
    assert sorted(found) == sorted(before), "lost, or copied twice"
    assert {name: seen for layer in layers.values() for name, seen in layer.items()} == before
    assert sorted(path.name for path in (tree / "layers").iterdir()) == sorted(LAYERS)


def test_each_file_ends_in_its_own_layer(tree: Path) -> None:
    split.main()
    layers = in_layers(tree)
    for name, layer in SITE.items():
        assert f"envs/pytorch/lib/python3.13/site-packages/{name}" in layers[layer], name
    for name, layer in ELSEWHERE.items():
        assert name in layers[layer], name


def test_links_stay_links(tree: Path) -> None:
    split.main()
    layers = in_layers(tree)
    for name, (target, layer) in LINKS.items():
        assert layers[layer][name][0] == f"-> {target}"


def test_folders_keep_mode_and_time_in_every_layer_that_holds_them(tree: Path) -> None:
    """A layer's folder replaces the one below it: a wrong mode there would lock the user out."""
    conda = tree / "opt" / "conda"
    site = conda / "envs/pytorch/lib/python3.13/site-packages"
    folders = [conda, *(path for path in conda.rglob("*") if path.is_dir() and not path.is_symlink())]
    for number, folder in enumerate(reversed(folders)):
        os.utime(folder, (1_000_000_000 + number, 1_000_000_000 + number))
    expected = {folder.relative_to("/"): mode_and_time(folder) for folder in folders}
    split.main()
    changed = {site, site / "nvidia", *(site.parents[number] for number in range(5))}
    copies = 0
    for layer in LAYERS:
        for path, (mode, modified) in expected.items():
            copy = tree / "layers" / layer / path
            if copy.is_dir():
                copies += 1
                assert mode_and_time(copy)[0] == mode, copy
                if Path("/") / path not in changed:  # what was taken out of a folder touches it
                    assert mode_and_time(copy)[1] == modified, copy
    assert copies > len(expected), "parents stand in many layers"


def test_a_directory_that_the_wheels_no_longer_have_stops_the_build(tree: Path) -> None:
    """Else its contents would move into another layer without a word."""
    shutil.rmtree(tree / "opt/conda/envs/pytorch/lib/python3.13/site-packages/triton")
    with pytest.raises(FileNotFoundError):
        split.main()
