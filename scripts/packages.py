"""What a bare Debian or Ubuntu machine lacks, and its installation with apt.

Debian 12 has no Docker that is new enough, but the packages of the next release run on it without
upgrading anything. They are taken from there with a private copy of apt's settings and lists: nothing
is ever written into /etc/apt, so there is nothing to take away again, however this program ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts import names, process, ui

ETC_APT = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
SECONDS_TO_STOP = 10
LOG = names.LOGS / "apt.log"

# A Debian release without docker-buildx, and the next one, which has it.
LENDER = {"bookworm": "trixie"}
TOO_OLD = ("stretch", "buster", "bullseye")

BUILDX = "docker-buildx"
# Ubuntu's docker.io contains the client.
DOCKER = {
    "debian": ("docker.io", "docker-cli", BUILDX, "docker-compose"),
    "ubuntu": ("docker.io", BUILDX, "docker-compose-v2"),
}
# Without it mmdebstrap cannot check Debian's signatures; Debian itself always has it, Ubuntu seldom.
KEYRING = "debian-archive-keyring"
KEYRING_FILE = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# A fresh Ubuntu updates itself in the background and holds apt's lock meanwhile.
OPTIONS = ("-o", "DPkg::Lock::Timeout=300")


@dataclass(frozen=True)
class Stanza:
    """One source of apt: where it lies, its releases, and the fields that say how it is trusted."""

    uris: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    extra: str = ""


@dataclass(frozen=True)
class Host:
    """What the choice of packages depends on."""

    id: str
    codename: str
    root: bool
    stanzas: tuple[Stanza, ...] = field(default=())

    @property
    def supported(self) -> bool:
        """Only Debian and Ubuntu themselves: their package names and releases are known here."""
        return self.id in DOCKER and self.codename not in TOO_OLD and shutil.which("apt-get") is not None

    @property
    def lender(self) -> str | None:
        """Name the release to borrow Docker from, when the host's own releases have none that builds."""
        if self.id != "debian":
            return None
        suites = {suite for stanza in self.stanzas for suite in stanza.suites}
        if suites & set(LENDER.values()):
            return None  # it already follows the release that would lend
        return next((to for own, to in LENDER.items() if own in suites or own == self.codename), None)


def read_host() -> Host:
    """Read which distribution this is and where its packages come from."""
    release = read_os_release(OS_RELEASE)
    return Host(
        id=release.get("ID", ""),
        codename=release.get("VERSION_CODENAME", ""),
        root=os.geteuid() == 0,
        stanzas=tuple(read_stanzas(ETC_APT)),
    )


def read_os_release(path: Path) -> dict[str, str]:
    """Parse os-release: NAME=value lines, quoted as in a shell."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name: "".join(shlex.split(value)) for name, _, value in pairs}


def read_stanzas(etc_apt: Path) -> Iterator[Stanza]:
    """Read apt's sources, in both of their forms."""
    for path in sorted(etc_apt.glob("sources.list.d/*.sources")):
        for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace")):
            yield from _deb822(block)
    for path in [etc_apt / "sources.list", *sorted(etc_apt.glob("sources.list.d/*.list"))]:
        if path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                yield from _one_line(line)


def _deb822(block: str) -> Iterator[Stanza]:
    text = "\n".join(line for line in block.splitlines() if not line.startswith("#"))
    fields = {name.lower(): value for name, value in re.findall(r"(?m)^([\w-]+):((?:.*)(?:\n[ \t].*)*)", text)}
    if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").strip() == "no":
        return
    known = ("types", "uris", "suites", "components", "enabled")
    extra = "".join(f"{name.title()}:{value}\n" for name, value in fields.items() if name not in known)
    yield Stanza(
        fields.get("uris", "").strip(),
        tuple(fields.get("suites", "").split()),
        tuple(fields.get("components", "").split()),
        extra,
    )


# apt's names of one-line options, as deb822 fields
_OPTIONS = {"signed-by": "Signed-By", "trusted": "Trusted", "arch": "Architectures"}


def _one_line(line: str) -> Iterator[Stanza]:
    match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)", line)
    if not match:
        return
    options = dict(pair.split("=", 1) for pair in (match[1] or "").split() if "=" in pair)
    extra = "".join(
        f"{_OPTIONS[name]}: {value.replace(',', ' ')}\n" for name, value in options.items() if name in _OPTIONS
    )
    yield Stanza(match[2], (match[3],), tuple(match[4].split()), extra)


def borrowed_source(host: Host) -> str:
    """Write the source that lends: the host's own Debian source, with the next release's name."""
    own = next(name for name, lender in LENDER.items() if lender == host.lender)
    for stanza in host.stanzas:
        if own in stanza.suites and "main" in stanza.components:
            return f"Types: deb\nURIs: {stanza.uris}\nSuites: {host.lender}\nComponents: main\n{stanza.extra}"
    raise ui.UserError(
        "this Debian's own package source was not found, so Docker cannot be installed from it",
        f"no source with suite {own} and component main below {ETC_APT}",
        "mend apt's sources, or install Docker 25 or later with its buildx plugin by hand",
    )


def pin(lender: str) -> str:
    """Keep all that is not asked for by name at the host's own release."""
    return f"Package: *\nPin: release n={lender}\nPin-Priority: 100\n"


def missing(engine: bool = False, buildx: bool = False) -> list[str]:
    """List the packages to install: what was asked for, and what a build or the tests need besides."""
    wanted: list[str] = []
    if engine:
        wanted += DOCKER.get(read_host().id, ())
    elif buildx:
        wanted.append(BUILDX)
    if not shutil.which("mmdebstrap"):
        wanted.append("mmdebstrap")
    if not KEYRING_FILE.is_file():
        wanted.append(KEYRING)
    if not has_venv():
        wanted.append(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv")
    return wanted


def has_venv() -> bool:
    """Tell whether this Python can make virtual environments (Debian splits ensurepip off)."""
    return process.capture([sys.executable, "-c", "import ensurepip, venv"]).ok


def commands(host: Host, wanted: Sequence[str]) -> str:
    """Write the commands that do by hand what `install` does."""
    sudo = "" if host.root else "sudo "
    lender = lender_for(host, wanted)
    versions = " ".join(with_release(wanted, lender))
    lines = [
        f"{sudo}apt-get update",
        f"{sudo}apt-get install --no-install-recommends --no-remove {versions}",
    ]
    if lender:
        files = (ETC_APT / "sources.list.d/borrowed.sources", ETC_APT / "preferences.d/borrowed")
        texts = (borrowed_source(host), pin(lender))
        lines[:0] = [
            f"printf '%s\\n' {' '.join(shlex.quote(line) for line in text.splitlines())} | {sudo}tee {path}"
            for text, path in zip(texts, files)
        ]
        lines += [f"{sudo}rm {files[0]} {files[1]}", f"{sudo}apt-get update"]
    return "\n".join(lines)


def lender_for(host: Host, wanted: Sequence[str]) -> str | None:
    """Name the release to borrow from, when one of these packages has to be borrowed."""
    return host.lender if any(_is_docker(name) for name in wanted) else None


def with_release(wanted: Sequence[str], lender: str | None) -> list[str]:
    """Write name/release for what is borrowed. Unlike `-t release` that lets apt take the rest from its own."""
    return [f"{name}/{lender}" if lender and _is_docker(name) else name for name in wanted]


def _is_docker(name: str) -> bool:
    return name.startswith("docker")


def refuse_or_announce(host: Host, wanted: Sequence[str], why: str) -> None:
    """Stop with the commands to type when nothing may be installed here; else say what is coming."""
    if not host.supported:
        raise ui.UserError(
            why,
            f"this system ({host.id or 'unknown'} {host.codename}) is neither Debian 12 or later nor Ubuntu,\n"
            "so nothing was installed",
            "install Docker 25 or later with its buildx plugin (on a Mac or Windows: Docker Desktop),\n"
            "start it, and run the same command again",
        )
    if os.environ.get("NO_INSTALL") == "1" or not host.root:
        reason = "NO_INSTALL=1 is set" if os.environ.get("NO_INSTALL") == "1" else "this is not root"
        raise ui.UserError(why, f"{reason}, so nothing was installed", commands(host, wanted))
    lender = lender_for(host, wanted)
    origin = f", Docker from Debian's next release ({lender})" if lender else ""
    ui.say(f"{why}.")
    ui.say(f"About to install with apt-get{origin}: {' '.join(wanted)}")
    ui.say("No package is removed, and apt's sources stay as they are. NO_INSTALL=1 prevents all of this.")
    if ui.terminal():
        ui.say(f"Press Ctrl-C within {SECONDS_TO_STOP} seconds to stop it.")
        time.sleep(SECONDS_TO_STOP)


def install(wanted: Sequence[str], why: str) -> None:
    """Install the packages, after saying so; a UserError tells why it did not work."""
    host = read_host()
    refuse_or_announce(host, wanted, why)
    lender = lender_for(host, wanted)
    with ui.steps.step("install packages", "apt-get update, then apt-get install"), _settings(host, lender) as options:
        updated = process.stream(["apt-get", *options, "update"], LOG, _quiet, _environ())
        lacking = [name for name in wanted if name not in offered(wanted, options)]
        if lacking:
            raise _no_package(lacking[0], updated)
        command = ["apt-get", *options, "install", "--yes", "--no-install-recommends", "--no-remove"]
        done = process.stream([*command, *with_release(wanted, lender)], LOG, _quiet, _environ())
        if not done.ok:
            complaints = [line for line in done.out.splitlines() if line.startswith(("E:", "W:"))]
            raise ui.UserError(
                "apt-get could not install what is needed",
                "\n".join(complaints) or done.last_words,
                f"read {LOG}, mend it, and run the same command again",
            )


def _quiet(line: str) -> None:
    if line.startswith("E:"):
        ui.say(f"   {line}")


def _environ() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}


def _no_package(name: str, updated: process.Result) -> ui.UserError:
    complaints = [line for line in updated.out.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    return ui.UserError(
        f"apt offers no package {name}: the distribution's package index may be out of reach",
        "\n".join(complaints[-4:]) or "apt-get update had nothing to complain about",
        "check the network, the proxy settings and apt's sources (on Ubuntu: is universe enabled?),\n"
        "then run the same command again",
    )


@contextlib.contextmanager
def _settings(host: Host, lender: str | None) -> Iterator[list[str]]:
    """Give apt its options. To borrow: the host's own settings and one source more, in a private folder."""
    if lender is None:
        yield list(OPTIONS)
        return
    with tempfile.TemporaryDirectory(prefix="apt-borrowed-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt's download user _apt reads it
        (folder / "lists" / "partial").mkdir(parents=True)
        for part, suffix, text in (
            ("sources.list.d", ".sources", borrowed_source(host)),
            ("preferences.d", "", pin(lender)),
        ):
            if (ETC_APT / part).is_dir():
                shutil.copytree(ETC_APT / part, folder / part)
            (folder / part).mkdir(exist_ok=True)
            (folder / part / f"borrowed{suffix}").write_text(text, encoding="utf-8")
        yield [
            *OPTIONS,
            *("-o", f"Dir::Etc::sourceparts={folder}/sources.list.d"),
            *("-o", f"Dir::Etc::preferencesparts={folder}/preferences.d"),
            *("-o", f"Dir::State::lists={folder}/lists"),
            *("-o", f"Dir::Cache::pkgcache={folder}/pkgcache.bin"),
            *("-o", f"Dir::Cache::srcpkgcache={folder}/srcpkgcache.bin"),
        ]


def offered(wanted: Sequence[str], options: Sequence[str]) -> set[str]:
    """Ask apt which of these packages its lists have."""
    answer = process.capture(["apt-cache", *options, "madison", *wanted], environ=_environ())
    return {line.split("|")[0].strip() for line in answer.out.splitlines() if line.endswith("Packages")}
