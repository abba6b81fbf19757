"""The repository's files: line ends, sizes, modes, the oldest Python they must run on, and what they import."""

from __future__ import annotations

import ast
import importlib.util
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import names
from tests.static import files

OLDEST = (3, 9)
LARGEST = 500_000
# Run by a Python that we do not choose: the base's, conda's, the caller's.
OURS = ("entrypoint", "doctor", "scripts", "selftest")
# In the standard library of some Pythons from 3.9 on, not of all.
NEWER = {"tomllib"}
REMOVED = {
    *("aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp"),
    *("mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau", "telnetlib"),
    *("uu", "xdrlib"),
}
# Runs in .venv, not on a bare machine: what it needs stands in requirements/dev.in.
IN_VENV = {"scripts/lock.py": {"packaging", "tomllib", "tomli"}}


def parse(path: Path) -> ast.Module:
    """The syntax tree, as the oldest Python would read it."""
    return ast.parse((names.ROOT / path).read_bytes(), filename=str(path), feature_version=OLDEST)


def imports(tree: ast.Module) -> Iterator[str]:
    """The top-level names of all that a file imports, also inside of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def is_standard(name: str) -> bool:
    """Is it in the standard library of every Python from 3.9 on?"""
    if name in NEWER | REMOVED:
        return False
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin in ("built-in", "frozen"):
        return spec is not None
    origin = Path(spec.origin or "/").resolve()
    library = Path(sysconfig.get_path("stdlib")).resolve()
    return library in origin.parents and not {"site-packages", "dist-packages"} & set(origin.parts)


# ---- bytes ----------------------------------------------------------------------------------------------------------
def test_lines_end_in_lf() -> None:
    assert not [name for name, text in files.texts().items() if "\r" in text]


def test_texts_end_with_one_newline() -> None:
    assert not [name for name, text in files.texts().items() if text and (text[-1] != "\n" or text.endswith("\n\n"))]


def test_a_checkout_on_windows_keeps_them() -> None:
    rules = [line.split() for line in files.texts()[".gitattributes"].splitlines() if not line.startswith("#")]
    assert rules[0] == ["*", "text=auto", "eol=lf"]
    binary = {rule[0].lstrip("*") for rule in rules[1:] if rule[1:] == ["binary"]}
    assert len(binary) == len(rules) - 1, "a later rule would change the first"
    assert {path.suffix for path in files.tracked() if files.is_binary(path)} <= binary


def test_no_file_is_large() -> None:
    for path in files.tracked():
        screenshot = path.suffix == ".png" and path.parts[0] == "docs"
        assert screenshot or (names.ROOT / path).stat().st_size <= LARGEST, path


def test_no_link_leads_out_of_the_repository() -> None:
    for path in files.tracked():
        assert (names.ROOT / path).resolve().is_relative_to(names.ROOT), path


def test_what_has_an_interpreter_is_executable_and_nothing_else() -> None:
    texts = files.texts()
    for name, executable in files.modes().items():
        if name in texts:
            assert executable == texts[name].startswith("#!"), f"{name}: git update-index --chmod=+x or -x"


def test_nothing_that_is_made_is_tracked() -> None:
    made = re.compile(r"(^|/)(\.venv|build|code|__pycache__|node_modules|\.[a-z]+_cache)/|\.pyc$|\.egg-info|^\.env$")
    allowed = ("scripts/build/", "requirements/code/", "tests/code/")  # not made: ours, of that name
    assert not [p for p in map(Path.as_posix, files.tracked()) if made.search(p) and not p.startswith(allowed)]


# ---- Python ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", files.python_files(*OURS, "tests", "pinfeed"), ids=str)
def test_the_oldest_python_can_read_it(path: Path) -> None:
    tree = parse(path)
    annotations = [getattr(node, "annotation", None) or getattr(node, "returns", None) for node in ast.walk(tree)]
    bars = [a for a in annotations if a and any(isinstance(node, ast.BitOr) for node in ast.walk(a))]
    postponed = "from __future__ import annotations" in (names.ROOT / path).read_text(encoding="utf-8")
    assert not bars or postponed, f"line {bars[0].lineno}: `X | None` is evaluated there, and 3.9 cannot"


@pytest.mark.parametrize(
    ("package", "others"), [("entrypoint", {"doctor"}), ("doctor", set()), ("selftest", {"pinfeed", "doctor"})]
)
def test_the_image_s_programs_need_the_standard_library_alone(package: str, others: set[str]) -> None:
    """A broken `pip install` must not keep the container from starting. Probes are run apart, to look at torch."""
    loaded_late = {"torch", "torchvision", "torchaudio", "numpy", "triton", "tqdm"}
    found = files.python_files(package)
    assert len(found) > 5
    for path in found:
        free = loaded_late if "probes" in path.parts or package == "selftest" else set()
        foreign = {name for name in imports(parse(path)) if not is_standard(name)} - others - free - {package}
        assert not foreign, f"{path}: {foreign}"


def test_the_host_s_programs_need_the_standard_library_alone() -> None:
    """A bare machine has Python 3.9 and make."""
    ours = {"scripts", "entrypoint", "doctor"}
    for path in files.python_files("scripts"):
        free = IN_VENV.get(path.as_posix(), set()) | ({"pinfeed"} if path.parts[1] == "image" else set())
        foreign = {name for name in imports(parse(path)) if not is_standard(name)} - ours - free
        assert not foreign, f"{path}: {foreign}"


@pytest.mark.parametrize(("name", "standard"), [("json", True), ("sys", True), ("pytest", False), ("spwd", False)])
def test_the_standard_library_is_told_apart(name: str, standard: bool) -> None:
    assert is_standard(name) is standard
