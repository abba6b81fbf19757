"""What this container offers: JupyterLab, sshd, their ports, the token and the keys."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from typing import Any
from urllib.parse import urlsplit

from doctor.findings import Finding, fail, ok, skip, warn
from doctor.patient import Patient

_SECONDS = 2.0
_NO_SERVICE = "no service was started here"
_KEY = re.compile(r"(?:^|\s)(ssh-(?:ed25519|rsa)|ecdsa-sha2-\S+|sk-\S+@openssh\.com)\s+[A-Za-z0-9+/=]{60,}")


def run_folder(patient: Patient) -> str:
    """Where the start wrote down what it started."""
    mine = f"/tmp/pytorch-cuda-{patient.uid}"
    return mine if patient.exists(f"{mine}/services.json") else "/run/pytorch-cuda"


def services(patient: Patient) -> list[dict[str, Any]]:
    """The services that should run here."""
    try:
        return list(json.loads(patient.read(f"{run_folder(patient)}/services.json"))["services"])
    except (ValueError, KeyError, TypeError):
        return []


def check_ports(patient: Patient) -> Finding:
    """Does each service answer on its port?"""
    wanted = services(patient)
    if not wanted:
        return skip("ports", _NO_SERVICE)
    answers = {str(one.get("name")): _trouble(one) for one in wanted}
    silent = [f"{name} does not answer: {trouble}" for name, trouble in answers.items() if trouble]
    if silent:
        return fail("ports", "; ".join(silent), "nobody can connect", "docker logs NAME says why; docker restart NAME")
    return ok("ports", ", ".join(f"{name} answers" for name in answers))


def _trouble(service: dict[str, Any]) -> str:
    host, port = "127.0.0.1", service.get("port")
    if service.get("probe") == "http":
        address = urlsplit(str(service.get("url")))
        host, port = address.hostname or host, address.port
    try:
        with socket.create_connection((host, int(port or 0)), timeout=_SECONDS) as connection:
            if service.get("probe") == "banner" and not connection.recv(4).startswith(b"SSH-"):
                return f"port {port} sends no SSH banner"
    except (OSError, ValueError) as error:
        return f"port {port}: {str(error).lower()}"
    return ""


def check_token(patient: Patient) -> Finding:
    """The token's file: there, and nobody else's to read. Its content is not looked at."""
    names = [str(one.get("name")) for one in services(patient)]
    if "jupyter" not in names:
        return skip("token", _NO_SERVICE if not names else "JupyterLab was not started here")
    if patient.variable("JUPYTER_AUTH") == "none":
        return warn(
            "token",
            "JUPYTER_AUTH=none: there is no login",
            "whoever reaches the port can run programs here",
            "leave JUPYTER_AUTH out; publish the port on 127.0.0.1 only",
        )
    path = f"{run_folder(patient)}/token"
    try:
        seen = os.lstat(patient.path(path))
    except FileNotFoundError:
        return ok("token", "given by the user, or a password is used")
    except OSError as error:
        return skip("token", f"{path}: {error.strerror}")
    if stat.S_IMODE(seen.st_mode) & 0o077:
        return warn(
            "token",
            f"{path} has mode {stat.S_IMODE(seen.st_mode):04o}",
            "others in the container may read it",
            f"chmod 600 {path}",
        )
    return ok("token", f"made at the first start; {path} is its owner's alone")


def check_keys(patient: Patient) -> Finding:
    """Public keys that may log in; counted, not shown."""
    if "sshd" not in [str(one.get("name")) for one in services(patient)]:
        return skip("ssh-keys", "sshd was not started here")
    folder = f"{run_folder(patient)}/authorized_keys.d"
    lines = [line for name in patient.names(folder) for line in patient.read(f"{folder}/{name}").splitlines()]
    keys = [line for line in lines if _KEY.search(line) and not line.startswith("#")]
    if not keys:
        return fail(
            "ssh-keys",
            "no public key may log in",
            "every ssh login is refused",
            'docker run -e SSH_PUBLIC_KEY="$(cat ~/.ssh/id_ed25519.pub)" ...',
        )
    return ok("ssh-keys", f"{len(keys)} public key{'s' if len(keys) > 1 else ''} may log in")


def check_host_keys(patient: Patient) -> Finding:
    """Host keys on a volume stay; others are new with each container, and ssh clients then refuse."""
    if "sshd" not in [str(one.get("name")) for one in services(patient)]:
        return skip("host-keys", "sshd was not started here")
    if any(mount.point == "/etc/ssh/host_keys" for mount in patient.mounts):
        return ok("host-keys", "kept on the volume at /etc/ssh/host_keys")
    return ok(
        "host-keys",
        "made for this container",
        "a new container has new ones, and ssh then warns; -v pytorch-host-keys:/etc/ssh/host_keys keeps them",
    )
