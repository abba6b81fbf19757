"""JupyterLab as a service: how to log in, its command line, its health, and what the user is told."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from entrypoint.errors import StartError
from entrypoint.secrets import Reader, UnreadableError, read_as_user, reveal
from entrypoint.settings import BY_NAME, Settings, check_text

# Started directly: `jupyter lab` would start a second Python only to find this program.
LAB = "/opt/conda/envs/pytorch/bin/jupyter-lab"
ROOT_FOLDER = "/workspace"
TOKEN_FILE = "token"
CONFIG_FILE = "jupyter/jupyter_server_config.json"
_OUR_TOKEN = re.compile(r"[0-9a-f]{48}")

# Other spellings of the options below; Jupyter refuses to start when one is given twice.
_ALIASES = {
    "--port": "ServerApp.port",
    "--ip": "ServerApp.ip",
    "--port-retries": "ServerApp.port_retries",
    "--notebook-dir": "ServerApp.root_dir",
    "--certfile": "ServerApp.certfile",
    "--keyfile": "ServerApp.keyfile",
    "--no-browser": "ServerApp.open_browser",
    "--allow-root": "ServerApp.allow_root",
    "--log-level": "Application.log_level",
    "--debug": "Application.log_level",
}
_LOGIN_OPTIONS = (
    "IdentityProvider.token",
    "ServerApp.token",
    "PasswordIdentityProvider.hashed_password",
    "ServerApp.password",
)


@dataclass(frozen=True)
class Login:
    """How to log in. `source`: "new", "kept" (both made by us), "given", "options" or "none"."""

    source: str
    token: str = ""
    password_hash: str = ""

    def __repr__(self) -> str:
        return f"Login({self.source!r})"


@dataclass(frozen=True)
class Lab:
    """All that starts JupyterLab: no secret is in `argv`, the login is in `config`."""

    argv: tuple[str, ...]
    config: bytes
    probe: Mapping[str, object]
    lines: tuple[str, ...]
    warnings: tuple[str, ...]


def choose_login(
    settings: Settings,
    options: Mapping[str, str],
    read: Reader,
    kept: Optional[str],
    make_token: Callable[[], str],
) -> Login:
    """Take the login that was given, else the token of this container's first start, else a new one."""
    token, password = settings["JUPYTER_TOKEN"], settings["JUPYTER_PASSWORD_HASH"]
    if settings["JUPYTER_AUTH"] == "none":
        _refuse_a_login_beside_none(token or password)
        return Login("none")
    if token or password:
        return Login("given", reveal(token, read) or "", reveal(password, read) or "")
    if any(name in options for name in _LOGIN_OPTIONS):
        return Login("options")
    return own_login(kept, make_token)


def own_login(kept: Optional[str], make_token: Callable[[], str]) -> Login:
    """The token of this container's first start, else a new one."""
    if kept and _OUR_TOKEN.fullmatch(kept):
        return Login("kept", kept)
    return Login("new", make_token())


def _refuse_a_login_beside_none(given: object) -> None:
    if given:
        name = getattr(given, "name", "")
        raise StartError(
            f"JUPYTER_AUTH=none and {name} cannot both be set",
            f"JUPYTER_AUTH=none, and {name} is set",
            "leave out JUPYTER_AUTH to log in, or the other for no login at all",
        )


def make_token() -> str:
    """A token that nobody can guess, of characters that no shell or URL changes."""
    return os.urandom(24).hex()


def parse_options(arguments: Sequence[str]) -> dict[str, str]:
    """What the user's own Jupyter options set, by name: `--A.b=c`, `--A.b c`, and short forms of ours."""
    found: dict[str, str] = {}
    for index, argument in enumerate(arguments):
        spelled, equals, value = argument.partition("=")
        name = _ALIASES.get(spelled) or (spelled[2:] if spelled.startswith("--") else "")
        if not name:
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else "-"
        found[name] = value if equals or following.startswith("-") else following
    return found


def plan_lab(
    settings: Settings,
    arguments: Sequence[str],
    login: Login,
    as_root: bool,
    token_path: str,
    ip: str = "0.0.0.0",
) -> Lab:
    """Put together what starts JupyterLab. An option of the user's takes the place of ours."""
    options = parse_options(arguments)
    ours = {name: value for name, value in _our_options(settings, as_root, ip).items() if name not in options}
    used = {**ours, **options}
    url = _url(used)
    return Lab(
        argv=(LAB, *(f"--{name}={value}" for name, value in ours.items()), *arguments),
        config=_config(login),
        probe={"name": "jupyter", "probe": "http", "url": f"{url}api"},
        lines=_lines(login, url, _port(used), token_path),
        warnings=_warnings(login, _port(used)),
    )


def listen_address(net: str = "/proc/net") -> str:
    """Every IPv4 address; in a network that has only IPv6 (a Kubernetes cluster may) `*`, which is both.

    `*` is not taken everywhere because Jupyter then warns at each start, and a warning must mean something.
    """
    try:
        with open(f"{net}/route", encoding="ascii") as file:
            has_ipv4 = len(file.readlines()) > 1  # the first line is the heading
        with open(f"{net}/if_inet6", encoding="ascii") as file:
            has_ipv6 = any(line.split()[-1] != "lo" for line in file if line.strip())
    except OSError:
        return "0.0.0.0"
    return "*" if has_ipv6 and not has_ipv4 else "0.0.0.0"


def _our_options(settings: Settings, as_root: bool, ip: str) -> dict[str, str]:
    options = {
        "ServerApp.ip": ip,
        "ServerApp.port": str(settings["JUPYTER_PORT"]),
        # A taken port is an error: on another one nobody would find it.
        "ServerApp.port_retries": "0",
        "ServerApp.open_browser": "False",
        "ServerApp.root_dir": ROOT_FOLDER,
        "ServerApp.base_url": settings["JUPYTER_BASE_URL"],
        # 25 lines at every start would push the URL, which the user needs, off the screen.
        "Application.log_level": "WARN",
    }
    if settings["JUPYTER_CERT_FILE"]:
        options["ServerApp.certfile"] = settings["JUPYTER_CERT_FILE"]
        options["ServerApp.keyfile"] = settings["JUPYTER_KEY_FILE"]
    if as_root:
        options["ServerApp.allow_root"] = "True"
    return options


def _port(options: Mapping[str, str]) -> str:
    return check_text(BY_NAME["JUPYTER_PORT"], options["ServerApp.port"])


def _url(options: Mapping[str, str]) -> str:
    """The address inside the container, which is also the host's when the port is published as it is."""
    scheme = "https" if options.get("ServerApp.certfile") else "http"
    ip = options["ServerApp.ip"]
    host = "127.0.0.1" if ip in ("*", "", "0.0.0.0", "::", "localhost") else ip
    host = f"[{host}]" if ":" in host else host
    path = check_text(BY_NAME["JUPYTER_BASE_URL"], options["ServerApp.base_url"])
    return f"{scheme}://{host}:{_port(options)}{path}"


def _config(login: Login) -> bytes:
    """Jupyter's configuration file: the only place where the login stands."""
    if login.source == "options":
        return b"{}\n"
    config = {
        "IdentityProvider": {"token": login.token},
        "PasswordIdentityProvider": {"hashed_password": login.password_hash},
    }
    return json.dumps(config, indent=2).encode() + b"\n"


def _lines(login: Login, url: str, port: str, token_path: str) -> tuple[str, ...]:
    ending = {
        "new": f"?token={login.token}",
        "kept": f"   (the token is still the one of the first start, in {token_path})",
        "given": f"   (log in with the {'token' if login.token else 'password'} that was given)",
        "options": "   (log in as the options say)",
        "none": "   (no login)",
    }[login.source]
    return (
        f"JupyterLab: {url}lab{ending}",
        f"after docker run -p 9000:{port} the port in that URL is 9000, the left one",
    )


def _warnings(login: Login, port: str) -> tuple[str, ...]:
    if login.source != "none":
        return ()
    return (f"JUPYTER_AUTH=none: whoever reaches port {port} can run programs here, without a login",)


def check_pair(settings: Settings) -> None:
    """Refuse a certificate without its key, and a key without its certificate."""
    cert, key = settings["JUPYTER_CERT_FILE"], settings["JUPYTER_KEY_FILE"]
    if bool(cert) != bool(key):
        missing = "JUPYTER_KEY_FILE" if cert else "JUPYTER_CERT_FILE"
        raise StartError(
            "HTTPS needs JUPYTER_CERT_FILE and JUPYTER_KEY_FILE",
            f"{missing} is not set",
            f"docker run -e {missing}=/run/secrets/{'key' if cert else 'cert'}.pem ... beside the other",
        )


def certificate_problem(cert: str, key: str) -> Optional[tuple[str, str]]:
    """What is wrong with the pair, as (variable, reason); called as the user, who must read both."""
    for name, path in (("JUPYTER_CERT_FILE", cert), ("JUPYTER_KEY_FILE", key)):
        try:
            read_as_user(path)
        except UnreadableError as error:
            return name, f"{path}: {error}"
    import ssl  # costs 20 ms, and only HTTPS needs it

    try:
        # The password keeps an encrypted key from asking on a terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError, OSError) as error:
        return "JUPYTER_CERT_FILE", f"{cert} with {key}: {getattr(error, 'reason', None) or error}"
    return None


def refuse_certificate(problem: Optional[Sequence[str]]) -> None:
    """Stop with the problem that `certificate_problem` found."""
    if problem:
        raise StartError(
            "JUPYTER_CERT_FILE and JUPYTER_KEY_FILE must be a certificate and its key that the user can read",
            f"{problem[0]}: {problem[1]}",
            "mount both as PEM files that the user may read (chmod 0440, group 0), the key without a passphrase",
        )
