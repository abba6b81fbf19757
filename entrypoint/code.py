"""VS Code in the browser (code-server) as a service: how to log in, its command line, its health."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Optional

from entrypoint.jupyter import Login, own_login
from entrypoint.secrets import Reader, reveal
from entrypoint.settings import Settings

# Not on PATH: a Node.js that the user installs is the one that is found.
NODE = "/opt/node/bin/node"
PROGRAM = "/opt/code-server/node_modules/code-server/out/node/entry.js"
ROOT_FOLDER = "/workspace"
TOKEN_FILE = "code_token"
CONFIG_FILE = "code/config.json"
# code-server takes these for its own login, before its configuration file, and passes them to nobody.
NOT_PASSED = (b"PASSWORD", b"HASHED_PASSWORD")


@dataclass(frozen=True)
class Editor:
    """All that starts VS Code: no secret is in `argv`, the password is in `config`."""

    argv: tuple[str, ...]
    config: bytes
    probe: Mapping[str, object]
    lines: tuple[str, ...]


def is_there() -> bool:
    """Tell whether this image has VS Code."""
    return os.path.exists(NODE) and os.path.exists(PROGRAM)


def choose_login(settings: Settings, read: Reader, kept: Optional[str], make_token: Callable[[], str]) -> Login:
    """Take the password that was given, else that of this container's first start, else a new one."""
    given = reveal(settings["CODE_TOKEN"], read)
    return Login("given", given) if given else own_login(kept, make_token)


def plan_editor(settings: Settings, login: Login, config_path: str, token_path: str, ip: str) -> Editor:
    """Put together what starts VS Code."""
    port = settings["CODE_PORT"]
    url = f"http://127.0.0.1:{port}/"
    options = (
        f"--config={config_path}",
        # Host and port one by one: over --bind-addr a PORT or CODE_SERVER_HOST of the user's would win.
        f"--host={'::' if ip == '*' else ip}",
        f"--port={port}",
        "--auth=password",
        "--disable-telemetry",
        "--disable-update-check",
        "--disable-getting-started-override",
    )
    return Editor(
        argv=(NODE, PROGRAM, *options, ROOT_FOLDER),
        # code-server's file is YAML, and so is JSON.
        config=json.dumps({"password": login.token}).encode() + b"\n",
        probe={"name": "code", "probe": "http", "url": f"{url}healthz"},
        lines=_lines(login, url, port, token_path),
    )


def _lines(login: Login, url: str, port: int, token_path: str) -> tuple[str, ...]:
    password = {
        "new": f"   password: {login.token}",
        "kept": f"   (the password is still the one of the first start, in {token_path})",
        "given": "   (log in with the password that was given)",
    }[login.source]
    return (
        f"VS Code: {url}{password}",
        f"after docker run -p 9000:{port} the port in that URL is 9000, the left one",
    )
