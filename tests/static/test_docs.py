"""The documents agree with the code, with each other, and with themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import docs
from scripts.test import SLOW_SUITES, SUITES

ROOT = Path(__file__).resolve().parents[2]
README_LINES = 120
TRANSLATED = [
    (path.relative_to(ROOT).as_posix().replace(".zh-CN", ""), path.relative_to(ROOT).as_posix())
    for path in (*ROOT.glob("*.zh-CN.md"), *sorted(ROOT.glob("docs/*.zh-CN.md")))
]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("pinfeed/*.md"))
)

# Which file runs a command of the READMEs. A block that no file runs says why, in a comment above it.
RUN_BY = {
    "make run": "tests/image/test_make.py",
    "make test": ".ci/run",
    "make train": "tests/image/test_make.py",
}
NOT_RUN = re.compile(r"<!-- not run here: \S.* -->\s*$")

# Read by the host's programs, but the caller's system sets them, not a user of ours.
OF_THE_SYSTEM = {"DOCKER_HOST", "PATH", "PIP_CERT", "SSH_CONNECTION", "SUDO_GID", "SUDO_UID", "SUDO_USER", "USER"}


def read(name: str) -> str:
    """A document's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    """What stands in fenced blocks."""
    return re.findall(r"(?ms)^```\w*\n(.*?)^```$", text)


def prose(text: str) -> str:
    """The text without fenced blocks."""
    return re.sub(r"(?ms)^```\w*\n.*?^```$", "", text)


def code(text: str) -> list[str]:
    """Everything that is written as code: fenced blocks, and spans in the text."""
    return [*blocks(text), *re.findall(r"`([^`\n]+)`", prose(text))]


def headings(text: str) -> list[str]:
    """The headings with their number signs."""
    return re.findall(r"(?m)^#{1,6} .+$", prose(text))


def anchor(heading: str) -> str:
    """The name by which a link reaches a heading, as GitHub makes it."""
    words = re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower())
    return words.replace(" ", "-")


def links(text: str) -> list[str]:
    """Where the links of a document lead."""
    return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(text))


def tables(text: str) -> list[list[int]]:
    """Each table as the number of cells of its rows."""
    found: list[list[int]] = []
    inside = False
    for line in prose(text).splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append(len(re.findall(r"(?<!\\)\|", line)))
        inside = line.startswith("|")
    return found


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of the fenced shell blocks, with the line above its block."""
    for match in re.finditer(r"(?ms)^(?P<above>[^\n]*)\n```bash\n(?P<body>.*?)^```$", text):
        for line in match["body"].splitlines():
            command = line.split(" #")[0].strip()
            if command and not command.startswith("#"):
                yield command, match["above"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    for link in links(read(name)):
        if link.startswith("https://"):
            continue  # for readers; no test depends on somebody's server
        path, _, fragment = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), f"{name}: nothing at {link}"
        if fragment:
            found = [anchor(heading) for heading in headings(target.read_text(encoding="utf-8"))]
            assert fragment in found, f"{name}: no heading for {link}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_a_document_names_exist(name: str) -> None:
    rooms = "docs|tests|scripts|entrypoint|pinfeed|requirements|doctor|selftest"
    for span in re.findall(r"`([^`\n]+)`", prose(read(name))):
        if re.fullmatch(rf"(?:{rooms})/[\w./*-]+", span):
            assert list(ROOT.glob(span.rstrip("/"))), f"{name}: {span}"


def test_pages_that_the_code_names_exist() -> None:
    ours = [path for pattern in ("*", "*/*.py", ".devcontainer/*", "scripts/*/*.py") for path in ROOT.glob(pattern)]
    for path in ours:
        if path.is_file() and path.suffix in ("", ".py", ".yml", ".hcl", ".json", ".toml", ".example"):
            for page in re.findall(r"docs/[a-z][\w./-]*(?:\.md|/\d{4})", path.read_text(encoding="utf-8")):
                assert list(ROOT.glob(f"{page}*")), f"{path.name}: {page}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_make_targets_in_the_documents_exist(name: str) -> None:
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", read("Makefile")))
    named = {word for piece in code(read(name)) for word in re.findall(r"\bmake ([a-z][a-z-]*)", piece)}
    assert named <= targets, f"{name} names targets that the Makefile lacks"


def test_every_make_target_is_in_the_changelog_or_in_contributing() -> None:
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", read("Makefile"))) - {"help"}
    text = read("CHANGELOG.md") + read("CONTRIBUTING.md") + read("docs/testing.md")
    assert not {target for target in targets if f"make {target}" not in text}


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: page.path.name)
def test_the_table_of_variables_is_the_one_in_the_code(page: docs.Page) -> None:
    text = page.path.read_text(encoding="utf-8")
    assert docs.with_table(text, page) == text, "run: python3 -m scripts.docs"


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: page.path.name)
def test_no_translation_is_left_over(page: docs.Page) -> None:
    used: set[str] = set()

    class Watched(dict[str, str]):
        def __getitem__(self, key: str) -> str:
            used.add(key)
            return super().__getitem__(key)

    docs.table(docs.Page(page.path, Watched(page.words)))
    assert set(page.words) == used


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: page.path.name)
def test_variables_on_the_configuration_pages_exist(page: docs.Page) -> None:
    sources = [
        ROOT / "Dockerfile",
        *ROOT.glob("entrypoint/*.py"),
        *ROOT.glob("scripts/*.py"),
        *ROOT.glob("pinfeed/*.py"),
    ]
    known = set(re.findall(r"\b[A-Z][A-Z_]+\b", "\n".join(path.read_text(encoding="utf-8") for path in sources)))
    known |= {f"{name}_FILE" for name in known} | {"NAME_FILE"}
    spans = re.findall(r"`([^`\n]+)`", prose(page.path.read_text(encoding="utf-8")))
    named = {match[1] for span in spans if (match := re.fullmatch(r"([A-Z][A-Z_]+)(=.*)?", span))}
    assert named - known == set()


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: page.path.name)
def test_variables_that_the_host_programs_read_are_documented(page: docs.Page) -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("scripts/*.py"))
    asked = set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', sources)) - OF_THE_SYSTEM
    text = page.path.read_text(encoding="utf-8")
    assert not {name for name in asked if f"`{name}`" not in text}


def test_every_suite_is_in_the_page_about_testing() -> None:
    text = read("docs/testing.md")
    missing = [suite for suite in (*SUITES, *SLOW_SUITES) if f"| {suite.name}" not in text or suite.path not in text]
    assert not missing


@pytest.mark.parametrize(("english", "chinese"), TRANSLATED)
def test_both_languages_are_in_step(english: str, chinese: str) -> None:
    ours, theirs = read(english), read(chinese)
    assert [h.count("#") for h in map(_signs, headings(ours))] == [h.count("#") for h in map(_signs, headings(theirs))]
    assert blocks(ours) == blocks(theirs)
    assert tables(ours) == tables(theirs)
    assert _inline_commands(ours) == _inline_commands(theirs)


def _signs(heading: str) -> str:
    return heading.split(" ")[0]


def _inline_commands(text: str) -> list[str]:
    return sorted(set(re.findall(r"`((?:make|docker) [^`\n]+)`", prose(text))))


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_a_readme_is_short(name: str) -> None:
    assert len(read(name).splitlines()) <= README_LINES


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_every_command_of_a_readme_is_run_or_says_why_not(name: str) -> None:
    seen = list(commands(read(name)))
    assert len(seen) == len([line for block in blocks(read(name)) for line in block.splitlines()])
    for command, above in seen:
        if command in RUN_BY:
            assert (ROOT / RUN_BY[command]).is_file(), f"{RUN_BY[command]} is said to run: {command}"
        else:
            assert NOT_RUN.search(above), f"{name}: nothing runs `{command}`, and no comment above it says why"


def test_every_folder_has_its_line_in_contributing() -> None:
    ignored = {line.strip().strip("/") for line in read(".gitignore").splitlines()} | {".git"}
    rooms = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in ignored]
    folders = [path.name for path in rooms if any(path.iterdir())]  # git keeps no empty one
    text = read("CONTRIBUTING.md")
    assert not [name for name in folders if f"\n| `{name}` | " not in text]


def test_every_decision_has_its_parts() -> None:
    parts = [heading for heading in headings(read("docs/adr/0000-template.md"))[1:]]
    records = sorted(ROOT.glob("docs/adr/*.md"))
    assert [path.name[:4] for path in records] == [f"{number:04}" for number in range(len(records))]
    for path in records:
        text = path.read_text(encoding="utf-8")
        assert headings(text)[1:] == parts, path.name
        assert headings(text)[0].startswith(f"# ADR {path.name[:4]}: "), path.name
        assert re.search(r"(?m)^Status: \S", text), path.name
