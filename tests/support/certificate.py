"""A certificate made on the spot, for HTTPS."""

from __future__ import annotations

from pathlib import Path

from tests.support.containers import call


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write cert.pem and key.pem, for `localhost`, readable for all: who may read them is the test's business."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    call(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
        *("-keyout", str(key), "-out", str(cert)),
    ).ok()
    cert.chmod(0o644)
    key.chmod(0o644)
    return cert, key
