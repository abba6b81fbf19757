"""Which public keys may log in: gathered from where they were given, and each line checked.

A line that sshd would pass over in silence is named by file and line, and never quoted: it may be a secret.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from entrypoint.secrets import Reader, UnreadableError
from entrypoint.settings import Given

FILE = "/etc/pytorch-cuda/authorized_keys"
FOLDER = "/etc/pytorch-cuda/ssh_keys.d"
_IN_HOME = ".ssh/authorized_keys"

_LINE_END = re.compile("\r\n|\r|\n")
_FEWEST_RSA_BITS = 1024  # sshd's own limit (RequiredRSASize)
_ED25519 = 32
_CURVES = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    *(f"ecdsa-sha2-{curve}" for curve in _CURVES),
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
# Those of OpenSSH 8.2; sshd refuses a line with one that it does not know.
_OPTIONS = frozenset(
    (
        *("agent-forwarding", "cert-authority", "command", "environment", "expiry-time", "from"),
        *("no-agent-forwarding", "no-port-forwarding", "no-pty", "no-touch-required", "no-user-rc"),
        *("no-x11-forwarding", "permitlisten", "permitopen", "port-forwarding", "principals", "pty", "restrict"),
        *("tunnel", "user-rc", "verify-required", "x11-forwarding"),
    )
)
# What people give instead of a public key, and what to tell them.
_MISTAKEN = (
    (
        ("-----BEGIN OPENSSH PRIVATE", "-----BEGIN RSA PRIVATE", "-----BEGIN EC PRIVATE", "-----BEGIN DSA PRIVATE"),
        "a private key, which must stay secret: give the file that ends in .pub",
    ),
    (
        ("-----BEGIN PRIVATE", "-----BEGIN ENCRYPTED PRIVATE", "PuTTY-User-Key-File-"),
        "a private key, which must stay secret: give the public one (ssh-keygen -y -f KEY prints it)",
    ),
    (("---- BEGIN SSH2 PUBLIC KEY",), "a public key in another form: ssh-keygen -i -f FILE converts it"),
    (("-----BEGIN",), "a key in another form: ssh-keygen -i -m PKCS8 -f FILE converts it"),
    (("$(", "`"), 'a command that no shell has run: docker run -e ...="$(cat KEY.pub)" needs double quotes'),
    (("/", "~", "./"), "the name of a file: give what is in it, or use SSH_PUBLIC_KEY_FILE"),
    (("ssh-dss ",), "a DSA key, which OpenSSH takes no more: make a new one with ssh-keygen -t ed25519"),
)


class BadLineError(Exception):
    """Why a line is no key, in words that quote nothing of it."""


@dataclass(frozen=True)
class Source:
    """A place where keys were given, by the name that its owner knows, and what it holds."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Keys:
    """The lines that are good, how many come from where, and what is wrong with the others."""

    lines: tuple[str, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)

    def render(self) -> bytes:
        """The authorized_keys file."""
        return "".join(f"{line}\n" for line in self.lines).encode("utf-8", "surrogateescape")

    @property
    def summary(self) -> str:
        """How many keys, and from where."""
        number = len(self.lines)
        places = ", ".join(f"{count} from {name}" for name, count in self.counts)
        return f"{number} public key{'s' if number > 1 else ''} may log in: {places}"


def gather(given: Given, home: str, read: Reader) -> Keys:
    """Read every place where a key may have been given."""
    problems: list[str] = []
    sources = []
    if given.value is not None:
        sources.append(Source(given.name, os.fsencode(given.value)))
    wanted = [given.path] if given.path else []
    for path in [*wanted, *_places(home, problems)]:
        try:
            sources.append(Source(path, read(path)))
        except UnreadableError as error:
            problems.append(f"{path}: {_explain(path, error)}")
    keys = parse(sources)
    return Keys(keys.lines, keys.counts, (*problems, *keys.problems))


def _places(home: str, problems: list[str]) -> list[str]:
    """The files that are there without being named by a variable."""
    found = [path for path in (FILE, os.path.join(home, _IN_HOME)) if os.path.lexists(path)]
    try:
        names = sorted(os.listdir(FOLDER))
    except FileNotFoundError:
        names = []
    except OSError as error:
        names = []
        problems.append(f"{FOLDER}: {(error.strerror or str(error)).lower()}")
    # Kubernetes keeps its own names, which begin with a dot, beside the files.
    return found + [f"{FOLDER}/{name}" for name in names if name.endswith(".pub") and not name.startswith(".")]


def _explain(path: str, error: UnreadableError) -> str:
    if os.path.isdir(path):
        return "it is a folder; Docker makes one where the file to mount does not exist on the host"
    return str(error)


def parse(sources: Iterable[Source]) -> Keys:
    """Take the good lines, once each, and name the others."""
    lines: dict[str, None] = {}
    counts, problems = [], []
    for source in sources:
        good, bad = _parse_one(source)
        fresh = [line for line in good if line not in lines]
        lines.update(dict.fromkeys(fresh))
        problems += bad
        if fresh:
            counts.append((source.name, len(fresh)))
    return Keys(tuple(lines), tuple(counts), tuple(problems))


def _parse_one(source: Source) -> tuple[list[str], list[str]]:
    if source.data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return [], [f"{source.name}: it is UTF-16 text, as PowerShell's > writes it: save it as UTF-8"]
    good: list[str] = []
    bad: list[str] = []
    text = source.data.decode("utf-8", "surrogateescape").lstrip("\ufeff")
    # Not splitlines(): that takes characters for line ends which may stand in a comment.
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            check_line(line)
            good.append(line)
        except BadLineError as error:
            bad.append(f"{source.name}, line {number}: {error}")
            if line.startswith("-----BEGIN"):
                break  # the lines that follow are its body
    return good, bad


def check_line(line: str) -> None:
    """Refuse a line of an authorized_keys file that sshd would not take."""
    for beginnings, why in _MISTAKEN:
        if line.startswith(beginnings):
            raise BadLineError(f"this is {why}")
    if "\0" in line:
        raise BadLineError("it holds a NUL byte")
    options, key = _split_options(line)
    for option in options:
        if option.partition("=")[0].lower() not in _OPTIONS:
            raise BadLineError("neither a key type nor an option that sshd knows stands at its beginning")
    kind, _, rest = key.partition(" ")
    if kind not in _TYPES:
        raise BadLineError("no key type follows the options" if options else "it does not begin with a key type")
    _check_key(kind, rest.split(None, 1)[0] if rest.strip() else "")


def _split_options(line: str) -> tuple[list[str], str]:
    """The options in front of a key, and the rest; commas and blanks in quotes belong to an option."""
    first = line.split(None, 1)[0]
    line = line.replace("\t", " ")
    if first in _TYPES:
        return [], line
    options, begun, quoted = [], 0, False
    for position, letter in enumerate(line):
        if letter == '"' and line[position - 1 : position] != "\\":
            quoted = not quoted
        elif not quoted and letter in ", ":
            options.append(line[begun:position])
            begun = position + 1
            if letter == " ":
                return options, line[position:].lstrip()
    if quoted:
        raise BadLineError("a quotation mark is not closed")
    raise BadLineError("it is neither a public key nor a comment")


def _check_key(kind: str, text: str) -> None:
    try:
        fields = _read_fields(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise BadLineError("the key is damaged or cut off") from None
    if not fields or fields[0] != kind.encode():
        raise BadLineError("the key is damaged: its type and its content differ")
    if not _is_whole(kind, fields[1:]):
        raise BadLineError("the key is damaged: its parts have the wrong length")
    if kind == "ssh-rsa" and int.from_bytes(fields[2], "big").bit_length() < _FEWEST_RSA_BITS:
        raise BadLineError(f"an RSA key of less than {_FEWEST_RSA_BITS} bits is refused by sshd")


def _read_fields(blob: bytes) -> list[bytes]:
    """The parts of a key: each is a length in four bytes and that many bytes."""
    fields = []
    while blob:
        length = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + length:
            raise ValueError
        fields.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return fields


def _is_whole(kind: str, fields: Sequence[bytes]) -> bool:
    if kind.startswith("sk-"):
        *fields, application = fields or (b"",)
        if not application:
            return False
    curve = next((name for name in _CURVES if name in kind), None)
    if curve:
        return [len(field) for field in fields] == [len(curve), _CURVES[curve]] and fields[0] == curve.encode()
    if kind == "ssh-rsa":
        return len(fields) == 2 and all(fields)
    return [len(field) for field in fields] == [_ED25519]


def refusal(keys: Keys) -> Optional[str]:
    """What was seen when there is no good key at all."""
    return None if keys else "; ".join(keys.problems) or "no key was given"
