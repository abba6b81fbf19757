"""What is installed on which distribution, and that nothing is left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import packages, process, ui
from scripts.packages import Host, Stanza
from scripts.process import Result
from tests.static.machine import FakeMachine, make_machine

BOOKWORM_SOURCES = """\
Types: deb
# a comment with an address
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://other.example/debian
Suites: trixie
Components: main
Enabled: no
"""
WANTED = packages.DOCKER["debian"]
VENV = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
BOOKWORM = Stanza("http://mirror.example/debian", ("bookworm",), ("main",), "Signed-By: /k.gpg\n")


@pytest.fixture
def etc_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    etc = tmp_path / "apt"
    (etc / "sources.list.d").mkdir(parents=True)
    monkeypatch.setattr(packages, "ETC_APT", etc)
    return etc


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    fake = make_machine(monkeypatch)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    return fake


def host(**changes: Any) -> Host:
    values: dict[str, Any] = {"id": "debian", "codename": "bookworm", "root": True, "stanzas": (BOOKWORM,)}
    return Host(**{**values, **changes})


def test_sources_of_both_forms_are_read(etc_apt: Path) -> None:
    (etc_apt / "sources.list.d/debian.sources").write_text(BOOKWORM_SOURCES)
    (etc_apt / "sources.list").write_text(
        "# deb http://commented.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://one.example/debian bookworm main contrib # why\n"
        "deb-src http://one.example/debian bookworm main\n"
    )
    first, _, last = packages.read_stanzas(etc_apt)
    assert first.suites == ("bookworm", "bookworm-updates")
    assert first.extra == "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    assert last == Stanza(
        "http://one.example/debian", ("bookworm",), ("main", "contrib"), "Architectures: amd64\nSigned-By: /k.gpg\n"
    )


def test_a_key_inside_the_source_is_kept_whole(etc_apt: Path) -> None:
    key = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
    (etc_apt / "sources.list.d/a.sources").write_text(f"Types: deb\nURIs: u\nSuites: bookworm\nComponents: main\n{key}")
    (stanza,) = packages.read_stanzas(etc_apt)
    assert stanza.extra == key


def test_os_release_is_read_with_its_quotes(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n# comment\n')
    assert packages.read_os_release(tmp_path / "os-release")["PRETTY_NAME"] == "Debian GNU/Linux 12 (bookworm)"
    assert packages.read_os_release(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("changes", "lender"),
    [
        ({}, "trixie"),
        ({"codename": "trixie", "stanzas": (Stanza("u", ("trixie",), ("main",)),)}, None),
        # A machine with some packages of the next release calls itself that, but its sources say what it follows.
        ({"codename": "trixie"}, "trixie"),
        ({"stanzas": (BOOKWORM, Stanza("u", ("trixie",), ("main",)))}, None),
        ({"id": "ubuntu", "codename": "noble", "stanzas": ()}, None),
    ],
)
def test_only_debian_12_borrows_from_the_next_release(changes: dict[str, Any], lender: object) -> None:
    assert host(**changes).lender == lender


def test_the_borrowed_source_is_the_hosts_own_with_another_release() -> None:
    text = packages.borrowed_source(host())
    assert "URIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\nSigned-By: /k.gpg" in text


def test_a_debian_without_its_own_source_is_told_so() -> None:
    with pytest.raises(ui.UserError, match="package source was not found"):
        packages.borrowed_source(host(stanzas=()))


@pytest.mark.parametrize(
    ("id", "python", "expected"),
    [
        ("debian", True, ["docker.io", "docker-cli", "docker-buildx", "docker-compose"]),
        ("ubuntu", True, ["docker.io", "docker-buildx", "docker-compose-v2"]),
        ("ubuntu", False, ["docker.io", "docker-buildx", "docker-compose-v2", VENV]),
    ],
)
def test_each_distribution_gets_its_own_names(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, id: str, python: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(packages, "read_host", lambda: host(id=id))
    monkeypatch.setattr(packages, "KEYRING_FILE", Path(__file__))
    monkeypatch.setattr(packages, "has_venv", lambda: python)
    assert packages.missing(engine=True) == expected


def test_what_a_build_and_the_tests_need_is_installed_with_the_engine(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(packages, "KEYRING_FILE", Path("/nowhere"))
    monkeypatch.setattr(packages, "has_venv", lambda: False)
    assert packages.missing(buildx=True) == ["docker-buildx", "mmdebstrap", "debian-archive-keyring", VENV]


def test_only_what_is_borrowed_names_its_release() -> None:
    assert packages.with_release(["docker.io", "mmdebstrap"], "trixie") == ["docker.io/trixie", "mmdebstrap"]
    assert packages.with_release(["docker.io", "mmdebstrap"], None) == ["docker.io", "mmdebstrap"]


@pytest.mark.parametrize(
    ("changes", "no_install", "reason"),
    [({"root": False}, "", "this is not root"), ({}, "1", "NO_INSTALL=1")],
)
def test_where_nothing_may_be_installed_the_commands_are_printed(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, changes: Any, no_install: str, reason: str
) -> None:
    monkeypatch.setenv("NO_INSTALL", no_install)
    with pytest.raises(ui.UserError) as caught:
        packages.refuse_or_announce(host(**changes), WANTED, "This machine has no container engine")
    message = str(caught.value)
    assert reason in message and "docker.io/trixie" in message
    assert message.count("rm /etc") == 1 or message.count("rm ") == 1
    assert caught.value.code != 0
    assert ("sudo apt-get install" in message) == (not changes.get("root", True))


@pytest.mark.parametrize("system", [{"id": "fedora", "codename": ""}, {"codename": "bullseye"}])
def test_another_system_is_told_what_to_install(machine: FakeMachine, system: dict[str, str]) -> None:
    with pytest.raises(ui.UserError, match="no engine") as caught:
        packages.refuse_or_announce(host(**system), WANTED, "no engine")
    assert next(iter(system.values())) in caught.value.seen and "Docker 25 or later" in caught.value.do


@pytest.mark.parametrize("terminal", [True, False])
def test_on_a_terminal_there_are_ten_seconds_to_stop_it(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr(ui, "terminal", lambda: terminal)
    packages.refuse_or_announce(host(), WANTED, "no engine")
    assert slept == ([10] if terminal else [])
    assert "docker.io" in capsys.readouterr().out


def _apt(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, install: Result) -> list[Path]:
    """Let apt answer, and keep the private folder that it was shown."""
    folders: list[Path] = []

    def stream(command: list[str], log: Path, on_line: object, environ: object = None) -> Result:
        part = next(word for word in command if word.startswith("Dir::Etc::sourceparts="))
        folders.append(Path(part.partition("=")[2]).parent)
        assert "Suites: trixie" in (folders[-1] / "sources.list.d/borrowed.sources").read_text()
        assert "Pin-Priority: 100" in (folders[-1] / "preferences.d/borrowed").read_text()
        machine.calls.append(" ".join(command))
        return install if "install" in command else Result(0)

    lines = [
        f"{name} | 1 | http://m trixie/main amd64 Packages" for name in ("docker.io", "docker-buildx", "docker-cli")
    ]
    machine.when("apt-cache", "\n".join([*lines, "docker-compose | 1 | http://m trixie/main amd64 Packages"]))
    monkeypatch.setattr(process, "stream", stream)
    monkeypatch.setattr(packages, "read_host", host)
    return folders


def test_borrowing_writes_nothing_below_etc_and_leaves_nothing(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, etc_apt: Path
) -> None:
    (etc_apt / "sources.list.d/debian.sources").write_text(BOOKWORM_SOURCES)
    before = sorted(etc_apt.rglob("*"))
    folders = _apt(machine, monkeypatch, Result(0))
    packages.install(WANTED, "no engine")
    assert sorted(etc_apt.rglob("*")) == before
    assert folders and not any(folder.exists() for folder in folders)
    (command,) = [line for line in machine.calls if " install " in line]
    assert "--no-remove" in command and "--no-install-recommends" in command and "docker.io/trixie" in command


def test_a_failed_installation_quotes_apt_and_leaves_nothing(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, etc_apt: Path
) -> None:
    folders = _apt(machine, monkeypatch, Result(100, "Reading...\nE: Unable to fetch some archives\n"))
    with pytest.raises(ui.UserError, match="could not install") as caught:
        packages.install(WANTED, "no engine")
    assert caught.value.seen == "E: Unable to fetch some archives"
    assert not any(folder.exists() for folder in folders)


def test_an_unreachable_index_is_named(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, etc_apt: Path) -> None:
    _apt(machine, monkeypatch, Result(0))
    machine.when("apt-cache", "")
    with pytest.raises(ui.UserError, match="package index may be out of reach"):
        packages.install(WANTED, "no engine")
