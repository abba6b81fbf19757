"""Build step: move /opt/conda into one folder a layer under /layers, so that big directories have layers of their own.

The Dockerfile's `runtime` stage copies each folder with `COPY --link`: pulls run in parallel, and a new JupyterLab does
not move torch. tests/static/test_dockerfile.py holds the names here and there together.
"""

from __future__ import annotations

import shutil
from pathlib import Path

CONDA = Path("/opt/conda")
ENVIRONMENT = CONDA / "envs/pytorch"
LAYERS = Path("/layers")

# Layer -> paths in site-packages. What no line names goes into `packages`, conda itself into `conda`.
IN_SITE_PACKAGES = {
    "cudnn": ["nvidia/cudnn"],
    "cublas": ["nvidia/cublas"],
    "nvidia": ["nvidia", "cusparselt"],
    "torch": ["torch", "torchgen", "functorch", "torchvision", "torchvision.libs", "torchaudio"],
    "triton": ["triton"],
}


def make_parents(source: Path, layer: Path) -> Path:
    """Make the folders above `source` in the layer, with the owner and mode that they have in the tree."""
    target = layer / source.relative_to("/")
    for parent in reversed(list(source.parents)[:-1]):  # a list: Python 3.9 cannot slice `parents`
        copy = layer / parent.relative_to("/")
        if not copy.exists():
            copy.mkdir()
            shutil.copystat(parent, copy)
    return target


def move(source: Path, layer: str) -> None:
    """Move `source` into the layer's folder, at the same path."""
    root = LAYERS / layer
    root.mkdir(parents=True, exist_ok=True)
    # A rename for what this build step made; what an earlier step made (small) cannot be renamed, and is copied.
    shutil.move(source, make_parents(source, root))


def move_contents(folder: Path, layer: str, leave: str = "") -> None:
    """Move what lies in `folder` into the layer's folder, but for the entry called `leave`."""
    for entry in sorted(folder.iterdir()):
        if entry.name != leave:
            move(entry, layer)


def copy_tree(folder: Path, layer: str) -> None:
    """Copy what is left of `folder` into the layer's folder, which may hold parts of it already."""
    target = make_parents(folder, LAYERS / layer)
    shutil.copytree(folder, target, symlinks=True, dirs_exist_ok=True)


def main() -> None:
    site = next((ENVIRONMENT / "lib").glob("python3.*/site-packages"))
    for layer, paths in IN_SITE_PACKAGES.items():
        for path in paths:
            move(site / path, layer)
    move_contents(site, "packages")
    copy_tree(ENVIRONMENT, "packages")
    (LAYERS / "conda/opt").mkdir(parents=True)
    make_parents(CONDA / "x", LAYERS / "conda")
    move_contents(CONDA, "conda", leave="envs")


if __name__ == "__main__":
    main()
