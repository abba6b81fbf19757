"""docker-bake.hcl renders; a variant is one row; bake is always told which file to read."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from typing import Any

import pytest

from scripts import engine, names
from tests.static import dockerfile, files

CODE = [f"{variant}-code" for variant in names.VARIANTS]
ROWS = [*names.bake_targets(), *CODE]
BAKE = (names.ROOT / "docker-bake.hcl").read_text(encoding="utf-8")
ARGUMENTS = {i.rest.partition("=")[0] for i in dockerfile.instructions(dockerfile.TEXT) if i.word == "ARG"}


def client() -> str:
    """A Docker client with buildx; rendering needs no daemon."""
    for program in engine.clients():
        if subprocess.run([program, "buildx", "version"], capture_output=True, check=False).returncode == 0:
            return program
    pytest.skip("no docker client with buildx here: the rows can be read, not rendered")


@pytest.fixture(scope="module")
def rendered() -> dict[str, Any]:
    environ = {name: value for name, value in os.environ.items() if name != "IMAGE" and not name.startswith("BUILDX_")}
    command = [client(), "buildx", "bake", "--file", "docker-bake.hcl", "--print", *ROWS]
    done = subprocess.run(command, cwd=names.ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    targets: dict[str, Any] = json.loads(done.stdout)["target"]
    return targets


def test_every_row_renders(rendered: dict[str, Any]) -> None:
    assert set(rendered) == set(ROWS)
    stages = dockerfile.stages()
    for name, row in rendered.items():
        assert row["dockerfile"] == "Dockerfile" and row["platforms"] == ["linux/amd64"], name
        assert row["target"] in stages, f"{name}: no stage {row['target']}"


def test_every_row_makes_an_image_of_its_own(rendered: dict[str, Any]) -> None:
    tags = [tag for row in rendered.values() for tag in row["tags"]]
    assert len(tags) == len(set(tags)) == len(rendered)
    for name, row in rendered.items():
        assert row["tags"] == [names.image_of(name)]


def test_a_row_sets_only_what_the_dockerfile_knows(rendered: dict[str, Any]) -> None:
    """A misspelt argument would be ignored without a word."""
    for name, row in rendered.items():
        assert set(row.get("args", {})) <= ARGUMENTS, name
        known = {*dockerfile.stages(), "code-lock"}
        assert set(row.get("contexts", {})) <= known, name


def test_the_default_row_changes_nothing(rendered: dict[str, Any]) -> None:
    assert "args" not in rendered["default"] and "contexts" not in rendered["default"]
    assert rendered["default"]["target"] == "runtime"


def test_each_variant_is_one_row() -> None:
    for variant in names.VARIANTS:
        rows = re.findall(rf'(?ms)^target "{variant}" \{{\n(.*?)^\}}$', BAKE)
        assert len(rows) == 1, variant
        assert 'inherits = ["_common"]' in rows[0], "what the rows share stands once"


def test_versions_stand_in_the_dockerfile_alone(rendered: dict[str, Any]) -> None:
    ours = {"TORCH", "MINIFORGE_VERSION", "MINIFORGE_SHA256", "SOURCE_DATE_EPOCH"}
    for name, row in rendered.items():
        assert not ours & set(row.get("args", {})), name
    assert not re.search(r"[0-9a-f]{64}|\b2\.7\.\d", BAKE)


def test_a_row_with_another_base_says_which_cuda_it_has(rendered: dict[str, Any]) -> None:
    for name, row in rendered.items():
        args = row.get("args", {})
        if "base" in row.get("contexts", {}):
            assert "BASE_NAME" in args and args["BASE_CUDA"] == "" and args["PYTHON_FROM"] == "distribution", name
        elif "BASE" in args:
            assert args["BASE_CUDA"] in args["BASE"], name


def test_a_row_says_which_variant_it_is(rendered: dict[str, Any]) -> None:
    for variant in names.VARIANTS:
        assert rendered[variant].get("args", {}).get("VARIANT", "default") == variant


@pytest.mark.parametrize("variant", names.VARIANTS)
def test_vs_code_follows_its_row(rendered: dict[str, Any], variant: str) -> None:
    row, code = rendered[variant], rendered[f"{variant}-code"]
    assert code["target"] == "code" and code["tags"] == [f"{row['tags'][0]}-code"]
    assert code["contexts"] == {**row.get("contexts", {}), "code-lock": "requirements/code"}
    named = "code" if variant == "default" else f"{variant}-code"
    assert code["args"] == {**row.get("args", {}), "VARIANT": named}


def test_test_images_stand_on_bases_made_here(rendered: dict[str, Any]) -> None:
    """Chromium's stage, too, updates apt's lists without removing NVIDIA's: its base has none."""
    for name, row in rendered.items():
        if row["target"] in ("thin", "test", "browser", "glibc-check"):
            assert row["contexts"]["base"].startswith("docker-image://pytorch-cuda-base:"), name


def without_file(words: list[str]) -> bool:
    """Tell a `bake` that is not told its file."""
    return any(
        word == "bake" and words[number - 1] == "buildx" and words[number + 1 : number + 2] not in (["--file"], ["-f"])
        for number, word in enumerate(words)
        if number
    )


def word_lists(source: str) -> list[list[str]]:
    """The words that a Python file passes on in a row: in lists, tuples and calls."""
    found = []
    for node in ast.walk(ast.parse(source)):
        items = (
            node.elts if isinstance(node, (ast.List, ast.Tuple)) else node.args if isinstance(node, ast.Call) else []
        )
        found.append([str(item.value) if isinstance(item, ast.Constant) else "" for item in items])
    return found


def test_bake_is_never_called_without_its_file() -> None:
    """It would merge docker-compose.yml, and build what stands there."""
    calls = 0
    for name, text in files.texts().items():
        if name.endswith(".py"):
            for words in word_lists(text):
                assert not without_file(words), f"{name}: {words}"
                calls += "bake" in words
        else:
            # in a command the subcommand is followed by a word; `buildx bake` in prose ends there
            for line in re.findall(r"buildx +bake +[^\s`].*", text):
                assert re.match(r"buildx +bake +(-f|--file)\b", line), f"{name}: {line}"
    assert calls, "the build's own call is not found: this test looks past it"


@pytest.mark.parametrize(
    ("words", "bare"),
    [
        ("docker buildx bake", True),
        ("docker buildx bake embedded", True),
        ("docker buildx bake --file x embedded", False),
        ("docker buildx bake -f x", False),
        ("bake a cake", False),
    ],
)
def test_a_bare_bake_is_seen(words: str, bare: bool) -> None:
    assert without_file(words.split()) is bare
