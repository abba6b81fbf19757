"""Build step: install the locked wheels into the environment, compile them, and make them writable for group 0.

Usage: install_wheels.py LOCK SOURCE_DATE_EPOCH    (run by root's interpreter in the Dockerfile's `wheels` stage)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = Path("/opt/conda/envs/pytorch")
PYTHON = ENVIRONMENT / "bin/python"
BOOTSTRAP = Path("/tmp/bootstrap")
CA_BUNDLE = Path("/run/secrets/ca_bundle")  # a company's proxy may sign with its own CA; never kept in a layer
HASHED = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]


def run(*command: object) -> None:
    """Run one command, shown first; a failure ends the build step."""
    words = [str(word) for word in command]
    print("+", " ".join(words), flush=True)
    subprocess.run(words, check=True)


def trust_the_secret_ca() -> None:
    """Let pip and uv trust the CA bundle that the build was given, if any."""
    if CA_BUNDLE.exists():
        os.environ.update({name: str(CA_BUNDLE) for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")})


def bootstrap_uv(lock: Path) -> Path:
    """Install uv into a throw-away environment, by the lock's own line for it."""
    line = next(line for line in lock.read_text().splitlines() if line.startswith("uv=="))
    requirement = Path("/tmp/uv.txt")
    requirement.write_text(line + "\n")
    run(sys.executable, "-m", "venv", BOOTSTRAP)
    run(BOOTSTRAP / "bin/pip", "install", "--quiet", "--no-cache-dir", *HASHED, "-r", requirement)
    return BOOTSTRAP / "bin/uv"


def install(uv: Path, lock: Path) -> None:
    """Install every wheel of the lock; uv's installer metadata holds times, so it is left out."""
    os.environ["UV_NO_INSTALLER_METADATA"] = "1"
    run(uv, "pip", "install", "--python", PYTHON, "--no-cache", "--link-mode", "copy", *HASHED, "-r", lock)
    (ENVIRONMENT / ".lock").unlink(missing_ok=True)


def site_packages() -> Path:
    """The environment's site-packages folder."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    seen = subprocess.run([str(PYTHON), "-I", "-c", code], check=True, capture_output=True, text=True)
    return Path(seen.stdout.strip())


def add_our_packages(site: Path) -> None:
    """pinfeed and doctor lie outside the environment, root-owned; a .pth file lets its Python import them."""
    (site / "pytorch-cuda.pth").write_text("/opt/pytorch-cuda/site\n")


def compile_bytecode(epoch: str) -> None:
    """Give every file the same time, then compile: the .pyc records its source's time and stays valid.

    Timestamp-checked, so an edit in site-packages takes effect (tests/image/test_bytecode.py).
    """
    run("find", ENVIRONMENT, "-exec", "touch", "--no-dereference", f"--date=@{epoch}", "{}", "+")
    # -q twice: some packages ship templates and files for other Pythons that do not compile; they are data.
    subprocess.run(
        [
            str(PYTHON),
            "-I",
            "-m",
            "compileall",
            "-qq",
            "-j",
            str(os.cpu_count()),
            "--invalidation-mode",
            "timestamp",
            str(site_packages()),
        ],
        check=False,
    )


def open_to_group_0() -> None:
    """`pip install` works for `user` (second group 0), for any PUID, and for any `--user N:0`."""
    run("chmod", "-R", "g=u", ENVIRONMENT)
    run("find", ENVIRONMENT, "-type", "d", "-exec", "chmod", "g+s", "{}", "+")


def prove() -> None:
    """The step worked only if torch imports, is a CUDA build, and pip finds no conflict."""
    run(PYTHON, "-I", "-c", "import torch; assert torch.version.cuda, 'not a CUDA build'")
    run(PYTHON, "-I", "-m", "pip", "check")


def main(lock: Path, epoch: str) -> None:
    os.umask(0o002)
    trust_the_secret_ca()
    install(bootstrap_uv(lock), lock)
    add_our_packages(site_packages())
    compile_bytecode(epoch)
    open_to_group_0()
    prove()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
