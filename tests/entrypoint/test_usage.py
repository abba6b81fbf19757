"""`--help` and `--version` of the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from entrypoint.settings import TABLE
from entrypoint.usage import help_text, version_text


@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_help_explains_every_variable(setting: Any) -> None:
    line = next(line for line in help_text().splitlines() if line.strip().startswith(setting.name))
    assert setting.help in line
    assert ("_FILE]" in line) is setting.by_file
    if setting.kind == "port":
        assert f"[{setting.default}]" in line


def test_help_shows_the_commands() -> None:
    for word in ("train", "bench", "probe", "pack", "doctor", "selftest", "jupyter", "--version"):
        assert word in help_text()


def test_version_prints_what_the_build_wrote_down(tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('{"version": "2.7", "variant": "embedded", "torch": "2.7.1"}')
    text = version_text(str(tmp_path / "image.json"))
    assert text.splitlines()[0] == "pytorch-cuda 2.7"
    assert "  torch        2.7.1" in text
    assert "  variant      embedded" in text


@pytest.mark.parametrize("content", [None, "", "not json"])
def test_version_of_a_build_without_facts_says_so(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "image.json"
    if content is not None:
        path.write_text(content)
    assert f"a build without {path}" in version_text(str(path))
