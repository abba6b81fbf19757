"""The names that the host's programs share: paths of this checkout, images, labels, public hosts."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "code"
VENV = ROOT / ".venv"
LOGS = ROOT / "build"  # logs, results and pictures of builds and tests

REPOSITORY = "pytorch-cuda"
VERSION = "v2.7"
BASE_REPOSITORY = f"{REPOSITORY}-base"
TEST_REPOSITORY = f"{REPOSITORY}-test"
CONTAINER = "pytorch-cuda"
LABEL = "pytorch-cuda.made-by=make"

VARIANTS = ("default", "embedded")


def image_of(target: str) -> str:
    """Name the image that a target of docker-bake.hcl makes."""
    if target in ("browser", "glibc-check"):
        return f"{TEST_REPOSITORY}:{target}"
    if target.startswith("glibc231"):
        return f"{REPOSITORY}:{target}"
    suffix = target[len("default") :] if target.startswith("default") else f"-{target}"
    return f"{REPOSITORY}:{VERSION}{suffix}"


def bake_targets() -> list[str]:
    """List the targets that docker-bake.hcl defines, helpers left out."""
    text = (ROOT / "docker-bake.hcl").read_text(encoding="utf-8")
    return re.findall(r'(?m)^target "([^_"][^"]*)"', text)


def source_date_epoch() -> str:
    """Read the build's fixed time from the head of the Dockerfile, where it is set."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return re.findall(r"(?m)^ARG SOURCE_DATE_EPOCH=(\d+)$", text)[0]


def public_host(key: str) -> str:
    """Read a host from requirements/sources.json, the one place where public hosts stand."""
    sources = json.loads((ROOT / "requirements" / "sources.json").read_text(encoding="utf-8"))
    return str(sources[key]["host"])


def ca_bundle() -> Path | None:
    """Find the host's CA bundle: behind an intercepting proxy the build needs it too."""
    candidates = [
        os.environ.get("SSL_CERT_FILE", ""),
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/cert.pem",
    ]
    return next((Path(name) for name in candidates if name and Path(name).is_file()), None)
