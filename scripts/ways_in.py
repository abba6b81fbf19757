"""How to get into a running container from this machine: what it says of itself, and whether that answers."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from scripts import container, names, ui
from scripts.engine import Engine


@dataclass(frozen=True)
class Published:
    """Where the container's ports are on this machine."""

    bind: str = "127.0.0.1"
    port: int = 8888
    ssh_port: int = 2222

    def text(self) -> str:
        """Write it down for the container's label."""
        return f"{self.bind}:{self.port}:{self.ssh_port}"

    @classmethod
    def parse(cls, text: str) -> Published | None:
        """Read a label; a container that was made in another way has none."""
        parts = text.split(":")
        return cls(parts[0], int(parts[1]), int(parts[2])) if len(parts) == 3 else None


def services(engine: Engine, name: str) -> dict[str, str]:
    """Read which services the container wrote down, and the addresses they answer at inside."""
    answer = engine.ask("exec", name, *container.READ, f"{container.RUN_DIRECTORY}/services.json")
    try:
        listed = json.loads(answer.out)["services"]
        return {one["name"]: one.get("url", "") for one in listed if one.get("probe") != "starting"}
    except (ValueError, KeyError, TypeError):
        return {}


def outside(published: Published, url: str, path: str = "") -> str:
    """Turn an address inside the container into one of this machine."""
    inner = urlsplit(url)
    host = "127.0.0.1" if published.bind == "0.0.0.0" else published.bind
    return f"{inner.scheme}://{host}:{published.port}{path or inner.path}"


def answers(url: str) -> bool:
    """Ask a service from outside, past any proxy; its certificate may well be self-made."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=5):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code < 500
    except (OSError, ValueError):
        return False


def tell(engine: Engine, name: str, published: Published, environ: Mapping[str, str] = os.environ) -> None:
    """Say how to get in: only what works in this container."""
    seen = services(engine, name)
    if "jupyter" in seen:
        path = urlsplit(seen["jupyter"]).path[: -len("api")] + "lab"
        token = engine.ask("exec", name, *container.READ, f"{container.RUN_DIRECTORY}/token").out.strip()
        login = f"?token={token}" if token else "   (log in with the token or password that you gave)"
        ui.say(f"JupyterLab: {outside(published, seen['jupyter'], path)}{login}")
    if "jupyter" in seen and environ.get("SSH_CONNECTION") and published.bind == "127.0.0.1":
        ui.say(f"  on your own computer, first: {tunnel(published, environ)}")
    if "sshd" in seen:
        ui.say(f"SSH:        ssh -p {published.ssh_port} user@{published.bind}")
    ui.say(f"{names.CODE} on this machine is /workspace/code inside. To stop: make stop")


def tunnel(published: Published, environ: Mapping[str, str]) -> str:
    """Write the command that brings the port from this remote machine to the computer in front of the user."""
    server = environ["SSH_CONNECTION"].split()[2]
    user = environ.get("SUDO_USER") or environ.get("USER") or "USER"
    return f"ssh -L {published.port}:127.0.0.1:{published.port} {user}@{server}"
