"""Public hosts stand in requirements/sources.json and nowhere else unlisted; registries and this machine in no file.

Links for readers in documents are free. What must not be named is put together from parts here.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from scripts import names
from tests.static import dockerfile, files

SOURCES: dict[str, dict[str, str]] = {
    key: value
    for key, value in json.loads((names.ROOT / "requirements" / "sources.json").read_text(encoding="utf-8")).items()
    if key
}
HOSTS = {source["host"] for source in SOURCES.values()}
URL = re.compile(r"\b(?:https?|git|ssh|ftp)://(?:[^/@\s]+@)?([A-Za-z0-9.-]*[A-Za-z0-9])")

# Named, but never connected to.
NOT_CONNECTED = {
    "repo.anaconda.com": {
        "scripts/build/conda/condarc",
        "tests/static/test_conda.py",
    },  # the commercial channel, denied
    "json-schema.org": {"tests/doctor/schema.json"},  # the name of a schema's language
}
# Hosts of the registries' clients, and their mirrors' usual names.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        *(("py" + "pi", "org"), ("py" + "pi", "python", "org"), ("python" + "hosted", "org")),
        *(("deb", "debian", "org"), ("security", "debian", "org"), ("ftp", "debian", "org")),
        *(("snapshot", "debian", "org"), ("archive", "debian", "org"), ("packages", "debian", "org")),
        *(("npm" + "js", "org"), ("npm" + "js", "com"), ("yarn" + "pkg", "com")),
    )
]


def is_document(name: str) -> bool:
    """Documents hold links for readers."""
    return name.endswith((".md", "LICENSE")) or name.startswith("docs/")


def is_public(host: str) -> bool:
    """Not this machine, not a made-up name (RFC 2606), not a name in a local network."""
    return "." in host and not re.fullmatch(r"[\d.]+", host) and not host.endswith((".example", ".test", ".invalid"))


def named() -> dict[str, set[str]]:
    """Each public host with the files, documents left out, that have its address."""
    found: dict[str, set[str]] = {}
    for name, text in files.texts().items():
        if not is_document(name):
            for host in URL.findall(text):
                if is_public(host):
                    found.setdefault(host, set()).add(name)
    return found


def test_every_host_that_is_named_is_listed() -> None:
    for host, where in named().items():
        assert host in HOSTS or where <= NOT_CONNECTED.get(host, set()), f"{host} in {sorted(where)}"


def test_every_host_that_is_listed_is_connected_to() -> None:
    """By an address in our files, by its key (names.public_host), or by a program or base that brings it along."""
    seen = named()
    code = "\n".join(text for name, text in files.texts().items() if name.endswith(".py"))
    brought = {
        "the default base": "ubuntu" in dockerfile.defaults()["BASE"],
        "code-server": '"code-server"' in files.texts()["requirements/code/package.json"],
    }
    for key, source in SOURCES.items():
        by_key = f'public_host("{key}")' in code
        by_other = brought.get(source.get("named_by", ""), False)
        assert source["host"] in seen or by_key or by_other, f"{key}: nothing connects to it"


def test_every_host_says_what_for() -> None:
    assert len(HOSTS) == len(SOURCES), "a host stands twice"
    for key, source in SOURCES.items():
        assert set(source) <= {"host", "used_for", "named_by"} and len(source["used_for"]) > 20, key
        assert is_public(source["host"]) and "/" not in source["host"], key


def test_the_base_comes_from_the_listed_registry() -> None:
    """A name without a host is taken from Docker's own registry."""
    assert "." not in dockerfile.defaults()["BASE"].partition("/")[0]
    assert SOURCES["base_registry"]["host"] == "registry-1.docker.io"


@pytest.mark.parametrize("registry", REGISTRIES)
def test_no_file_names_a_package_registry(registry: str) -> None:
    where = [name for name, text in files.texts().items() if registry in text.lower()]
    assert not where, "its client knows it: pip, uv, apt and npm are configured by the machine"


def test_no_commit_names_a_package_registry() -> None:
    command = ["git", "log", "--format=%h %an %ae%n%B"]
    done = subprocess.run(command, cwd=names.ROOT, capture_output=True, text=True, check=False)
    assert not [registry for registry in REGISTRIES if registry in done.stdout.lower()]


def test_no_file_names_a_path_of_a_developers_machine() -> None:
    homes = re.compile(r"(?<![\w.])/(?:home|Users)/(?!user\b|me\b|ann\b|ubuntu\b)[a-z]\w*|bash_jobs")
    for name, text in files.texts().items():
        if name != "tests/static/test_sources.py":
            assert not homes.search(text), name


def test_no_file_names_the_folder_of_this_checkout() -> None:
    root = names.ROOT.as_posix()
    if len(names.ROOT.parts) < 3 or names.ROOT.is_relative_to("/workspace"):
        pytest.skip(f"{root} is a name that the image's own paths hold")
    inside = re.compile(rf"(?<![\w.]){re.escape(root)}(?![\w-])")
    assert not [name for name, text in files.texts().items() if inside.search(text)]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("ADD https://a.example/x/y.sh /", ["a.example"]),
        ("f'http://{host}/v2/'", []),
        ('"https://user:pw@b.c-d.example:8080/x"', ["b.c-d.example"]),
        ("git://c.example.", ["c.example"]),
    ],
)
def test_an_address_is_seen(text: str, hosts: list[str]) -> None:
    assert URL.findall(text) == hosts
