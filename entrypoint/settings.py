"""The variables that a user may set: one table, from which the checks, `--help` and the docs are made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

from entrypoint.errors import StartError

MODES = ("auto", "jupyter", "ssh", "all", "code")
PINFEED = ("train", "bench", "probe", "pack")
CHECKS = ("doctor", "selftest")
EVERY_COMMAND = MODES + PINFEED + CHECKS + ("exec",)
_LAB = ("auto", "jupyter", "all")
_SSH = ("auto", "ssh", "all")


@dataclass(frozen=True)
class Setting:
    """One variable. `by_file`: `<NAME>_FILE` may name a file that holds the value."""

    name: str
    kind: str
    default: Any
    help: str
    used_by: tuple[str, ...]
    example: str
    secret: bool = False
    by_file: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Given:
    """A value that may come from a file; the file is read later, as the user (secrets.py)."""

    name: str
    value: Optional[str] = None
    path: Optional[str] = None

    def __bool__(self) -> bool:
        return self.value is not None or self.path is not None

    def __repr__(self) -> str:
        return f"Given({self.name!r}, {'by value' if self.value is not None else self.path!r})"


TABLE: tuple[Setting, ...] = (
    Setting("MODE", "choice", "auto", "what starts when no command is given", (), "jupyter", choices=MODES),
    Setting(
        "JUPYTER_TOKEN",
        "secret",
        None,
        "the token for logging in; without one a random token is made",
        _LAB,
        "a-long-random-text",
        secret=True,
        by_file=True,
    ),
    Setting(
        "JUPYTER_PASSWORD_HASH",
        "hash",
        None,
        "log in with a password: what `jupyter server password` wrote",
        _LAB,
        "'argon2:$argon2id$v=19$m=10240,t=10,p=8$SALT$HASH'",
        secret=True,
        by_file=True,
    ),
    Setting(
        "JUPYTER_AUTH",
        "choice",
        "token",
        "none: anybody who reaches the port may log in",
        _LAB,
        "none",
        choices=("token", "none"),
    ),
    Setting("JUPYTER_PORT", "port", 8888, "JupyterLab's port in the container", _LAB, "8888"),
    Setting("JUPYTER_BASE_URL", "base_url", "/", "the path below which JupyterLab answers", _LAB, "/lab1/"),
    Setting("JUPYTER_CERT_FILE", "path", None, "certificate (PEM) for HTTPS", _LAB, "/run/secrets/cert.pem"),
    Setting("JUPYTER_KEY_FILE", "path", None, "private key (PEM) for HTTPS", _LAB, "/run/secrets/key.pem"),
    Setting(
        "CODE_TOKEN",
        "secret",
        None,
        "the password for VS Code in the browser; without one it is made",
        ("code",),
        "a-long-random-text",
        secret=True,
        by_file=True,
    ),
    Setting("CODE_PORT", "port", 8080, "port of VS Code in the browser, in the container", ("code",), "8080"),
    Setting(
        "SSH_PUBLIC_KEY",
        "text",
        None,
        "public keys that may log in, one a line",
        _SSH,
        '"$(cat ~/.ssh/id_ed25519.pub)"',
        by_file=True,
    ),
    Setting("SSH_PORT", "port", 22, "sshd's port in the container", _SSH, "22"),
    Setting(
        "PUID",
        "id",
        None,
        "run as this user id; else as the owner of /workspace/code",
        EVERY_COMMAND,
        "$(id -u)",
    ),
    Setting("PGID", "id", None, "run with this group id", EVERY_COMMAND, "$(id -g)"),
    Setting("GRANT_SUDO", "switch", False, "1: the user may use sudo without a password", MODES, "1"),
    Setting(
        "REQUIRE_GPU",
        "switch",
        False,
        "1: stop when the container has no GPU",
        (*MODES, "train", "bench", "probe"),
        "1",
    ),
)

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in TABLE}


class Settings:
    """The values that one command uses, checked."""

    def __init__(self, values: Mapping[str, Any], notes: tuple[str, ...] = ()) -> None:
        self._values = dict(values)
        self.notes = notes

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @classmethod
    def read(cls, environ: Mapping[bytes, bytes], only: Iterable[str]) -> Settings:
        """Check the settings in `only` and leave every other variable alone."""
        wanted = [BY_NAME[name] for name in only]
        return cls(
            {setting.name: _read(setting, environ) for setting in wanted},
            tuple(_ignored(setting, environ) for setting in wanted if is_service_link(setting.name, environ)),
        )


def used_by(word: str) -> tuple[str, ...]:
    """The names of the settings that the command `word` uses."""
    return tuple(setting.name for setting in TABLE if word in setting.used_by)


def is_service_link(name: str, environ: Mapping[bytes, bytes]) -> bool:
    """Whether Kubernetes, not the user, set this port: it does so for a Service called `jupyter`."""
    return BY_NAME[name].kind == "port" and environ.get(name.encode(), b"").startswith(b"tcp://")


def _ignored(setting: Setting, environ: Mapping[bytes, bytes]) -> str:
    return (
        f"{setting.name}={_text(setting.name, environ)} comes from a Kubernetes Service and is ignored "
        "(enableServiceLinks: false in the pod keeps it out)"
    )


def _text(name: str, environ: Mapping[bytes, bytes]) -> str:
    return os.fsdecode(environ.get(name.encode(), b""))


def _read(setting: Setting, environ: Mapping[bytes, bytes]) -> Any:
    if setting.by_file:
        return _read_given(setting, environ)
    text = _text(setting.name, environ)
    if not text or is_service_link(setting.name, environ):
        return setting.default
    return _PARSERS[setting.kind](setting, text)


def _read_given(setting: Setting, environ: Mapping[bytes, bytes]) -> Given:
    name, value = setting.name, _text(setting.name, environ)
    path = _text(f"{name}_FILE", environ)
    if name == "JUPYTER_TOKEN" and not value and name.encode() in environ:
        raise _empty_token()
    if value and path:
        raise StartError(
            f"{name} and {name}_FILE cannot both be set",
            f"{name} is set, and {name}_FILE={path}",
            f"leave out one of the two, e.g. docker run -e {name}_FILE={path} ...",
        )
    if value:
        return Given(name, value=_PARSERS[setting.kind](setting, value))
    return Given(name, path=_path(setting, path, f"{name}_FILE") if path else None)


def check_text(setting: Setting, text: str) -> str:
    """Check a value that came another way (a file, an option) as if the variable had held it."""
    return str(_PARSERS[setting.kind](setting, text))


def _empty_token() -> StartError:
    return StartError(
        "JUPYTER_TOKEN must not be empty",
        "JUPYTER_TOKEN= (elsewhere that means: no login at all)",
        "leave it out and a random token is made; for no login at all: docker run -e JUPYTER_AUTH=none ...",
    )


def _mistake(setting: Setting, rule: str, seen: str) -> StartError:
    return StartError(f"{setting.name} must be {rule}", seen, f"docker run -e {setting.name}={setting.example} ...")


def _seen(setting: Setting, text: str) -> str:
    return f"{setting.name}={text}"


def closest(word: str, words: Iterable[str]) -> str:
    """The word that the user most likely meant, or an empty text."""
    import difflib  # only a mistake pays for it

    found = difflib.get_close_matches(word.lower(), list(words), n=1)
    return found[0] if found else ""


def _choice(setting: Setting, text: str) -> str:
    if text in setting.choices:
        return text
    meant = closest(text, setting.choices) or setting.example
    do = f"docker run -e {setting.name}={meant} ..."
    if setting.name == "MODE" and text in PINFEED + CHECKS:
        do = f"docker run IMAGE {text} ...   ({text} is a command, not a mode)"
    raise StartError(f"{setting.name} must be one of: {', '.join(setting.choices)}", _seen(setting, text), do)


def _whole_number(setting: Setting, text: str, lowest: int, highest: int) -> int:
    # isdigit() alone also takes digits of other scripts, and int() takes "1_0" and " 1 ".
    if text.isascii() and text.isdigit() and len(text) <= 10 and lowest <= int(text) <= highest:
        return int(text)
    raise _mistake(setting, f"a whole number from {lowest} to {highest}", _seen(setting, text))


def _port(setting: Setting, text: str) -> int:
    return _whole_number(setting, text, 1, 65535)


_HIGHEST_ID = 2**32 - 2  # 2**32 - 1 means "no id" to the kernel


def _id(setting: Setting, text: str) -> int:
    return _whole_number(setting, text, 0, _HIGHEST_ID)


def _switch(setting: Setting, text: str) -> bool:
    if text in ("0", "1"):
        return text == "1"
    raise _mistake(setting, "1 or 0", _seen(setting, text))


def _path(setting: Setting, text: str, name: str = "") -> str:
    if text.startswith("/"):
        return text
    name = name or setting.name
    raise StartError(
        f"{name} must be an absolute path in the container",
        f"{name}={text}",
        f"docker run -v $PWD/{os.path.basename(text)}:/run/secrets/{os.path.basename(text)}:ro "
        f"-e {name}=/run/secrets/{os.path.basename(text)} ...",
    )


def _base_url(setting: Setting, text: str) -> str:
    if "://" in text or not re.fullmatch(r"[A-Za-z0-9._~%@+,;:=&!*()/-]+", text):
        raise _mistake(setting, "a path such as /lab1/, of letters, digits and - . _ ~", _seen(setting, text))
    inner = "/".join(part for part in text.split("/") if part)
    return f"/{inner}/" if inner else "/"


def _any_text(setting: Setting, text: str) -> str:
    return text


def _secret(setting: Setting, text: str) -> str:
    # Jupyter takes the token from a URL and from an HTTP header: a blank or a newline cannot be sent there.
    if re.fullmatch(r"[!-~]+", text):
        return text
    raise _mistake(
        setting,
        "one line of visible ASCII characters without blanks",
        f"a value of {len(text)} characters with others in it",
    )


_HASH = re.compile(
    r"argon2:\$argon2(id|i|d)\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+"
    r"|sha(1|224|256|384|512):[^:\s]+:[0-9a-f]+"
)


def _hash(setting: Setting, text: str) -> str:
    if _HASH.fullmatch(text):
        return text
    raise StartError(
        f"{setting.name} must be a hash as `jupyter server password` writes it",
        f"{len(text)} characters, not of the form argon2:$argon2id$v=..$m=..$SALT$HASH or sha1:SALT:HASH",
        "quote it with '...' in a shell, write each $ as $$ in a compose file (both eat $), or use "
        f"{setting.name}_FILE; a new one: docker run -it IMAGE python -c "
        "'from jupyter_server.auth import passwd; print(passwd())'",
    )


_PARSERS: Mapping[str, Callable[[Setting, str], Any]] = {
    "choice": _choice,
    "port": _port,
    "id": _id,
    "switch": _switch,
    "path": _path,
    "base_url": _base_url,
    "text": _any_text,
    "secret": _secret,
    "hash": _hash,
}
