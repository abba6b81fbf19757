"""What only the image has: its description, its locked packages, its data, its guards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from selftest.checks import HOME_OF_THE_IMAGE, IMAGE, check, require

PROGRAMS = (
    *("git", "tmux", "vim", "curl", "wget", "less", "htop", "rsync", "nvitop", "pip", "uv", "gcc", "g++"),
    *("jupyter", "torchrun", "pinfeed", "doctor", "selftest"),
)
_DATA = Path("/opt/datasets/fashion-mnist")


@check("the image is what image.json says", needs=IMAGE)
def image_says_the_truth() -> str:
    told = json.loads(Path(HOME_OF_THE_IMAGE, "image.json").read_text(encoding="utf-8"))
    seen = metadata.version("torch").partition("+")[0]
    require(told["torch"] == seen, f"image.json says torch {told['torch']}, installed is {seen}")
    return f"{told['version']} {told['variant'] or 'default'}, base {told['base']}"


@check("torch and its CUDA wheels are the locked ones", needs=IMAGE)
def packages_are_the_locked_ones() -> str:
    path = Path(HOME_OF_THE_IMAGE, "constraints.txt")
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "==" in line and line[0] != "#"]
    locked = dict(line.split(",")[0].split("==") for line in lines)
    odd = [
        f"{name} {metadata.version(name)} (locked {version})"
        for name, version in locked.items()
        if metadata.version(name).partition("+")[0] != version
    ]
    require(locked and not odd, ", ".join(odd) or f"{path} names nothing")
    return f"{len(locked)} packages"


@check("pip reads the constraints in this environment", needs=IMAGE)
def pip_is_guarded() -> None:
    command = [sys.executable, "-m", "pip", "config", "--site", "get", "install.constraint"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    require(done.stdout.strip().endswith("constraints.txt"), f"{done.stdout} {done.stderr}")


@check("pip finds no conflict between the packages", needs=IMAGE)
def packages_fit() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=120, check=False
    )
    require(done.returncode == 0, done.stdout + done.stderr)
    return done.stdout.strip()


@check("the programs that the image promises are on PATH", needs=IMAGE)
def programs_are_there() -> None:
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    require(not missing, f"missing: {' '.join(missing)}")


@check("Fashion-MNIST is there, whole", needs=IMAGE)
def data_is_there() -> None:
    sizes = {
        "train-images-idx3-ubyte": 16 + 60000 * 784,
        "train-labels-idx1-ubyte": 8 + 60000,
        "t10k-images-idx3-ubyte": 16 + 10000 * 784,
        "t10k-labels-idx1-ubyte": 8 + 10000,
    }
    odd = [name for name, size in sizes.items() if not (_DATA / name).exists() or (_DATA / name).stat().st_size != size]
    require(not odd, f"missing or cut: {odd}")


@check("packages can be installed by this user", needs=IMAGE)
def environment_is_writable() -> None:
    folder = sysconfig.get_path("purelib")
    require(os.access(folder, os.W_OK), f"uid {os.geteuid()} may not write to {folder} (--user N:0 may)")
