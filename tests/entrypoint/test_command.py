"""What the first argument means."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.command import known_words, plan_command
from entrypoint.errors import StartError


def plan(*argv: Any, **environ: str) -> Any:
    return plan_command(argv, {name.encode(): value.encode() for name, value in environ.items()})


def test_no_argument_starts_the_mode_auto() -> None:
    assert (plan().kind, plan().word) == ("services", "auto")


@pytest.mark.parametrize("mode", ["auto", "jupyter", "ssh", "all", "code"])
def test_no_argument_starts_what_mode_says(mode: Any) -> None:
    assert (plan(MODE=mode).kind, plan(MODE=mode).word) == ("services", mode)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(StartError, match="MODE must be one of"):
        plan(MODE="jupiter")


def test_mode_does_not_matter_beside_a_command() -> None:
    assert plan("bash", MODE="jupiter").argv == ("bash",)


@pytest.mark.parametrize("word", ["jupyter", "ssh", "all", "code"])
def test_a_mode_that_stands_alone_starts_it(word: Any) -> None:
    assert (plan(word).kind, plan(word).word) == ("services", word)


@pytest.mark.parametrize("option", ["--ServerApp.port=9", "--LabApp.x=1", "--IdentityProvider.token=t"])
def test_jupyter_with_options_of_jupyters_starts_it_and_passes_them_on(option: Any) -> None:
    found = plan("jupyter", option, "--debug")
    assert (found.kind, found.word, found.argv) == ("services", "jupyter", (option, "--debug"))


@pytest.mark.parametrize(
    "argv",
    [
        ("jupyter", "--version"),
        ("jupyter", "lab", "--ServerApp.port=9"),
        ("jupyter", "--ServerApp"),
        ("ssh", "-V"),
        ("code", "."),
        ("all", "x"),
        ("bash",),
        ("python", "x.py", "--help"),
        ("trainer",),
        ("TRAIN",),
        ("",),
    ],
)
def test_every_other_command_is_run_unchanged(argv: Any) -> None:
    found = plan(*argv)
    assert (found.kind, found.word, found.argv, found.ours) == ("exec", "exec", argv, False)


@pytest.mark.parametrize("word", ["train", "bench", "probe", "pack"])
def test_a_word_of_the_feed_runs_pinfeed(word: Any) -> None:
    found = plan(word, "--epochs", "1")
    assert found.argv == ("/opt/pytorch-cuda/bin/pinfeed", word, "--epochs", "1")
    assert (found.kind, found.word, found.ours) == ("exec", word, True)


@pytest.mark.parametrize("word", ["doctor", "selftest"])
def test_doctor_and_selftest_run_the_images_own_program(word: Any) -> None:
    assert plan(word, "--json").argv == (f"/opt/pytorch-cuda/bin/{word}", "--json")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_are_of_the_image(option: Any) -> None:
    assert plan(option, "x").kind == option[2:]


def test_jupyter_checks_its_own_settings_and_train_does_not() -> None:
    assert "JUPYTER_PORT" in plan("jupyter").settings
    assert "JUPYTER_PORT" not in plan("train").settings
    assert "REQUIRE_GPU" in plan("train").settings
    assert plan("bash").settings == ("PUID", "PGID")


def test_ssh_does_not_check_jupyters_settings() -> None:
    assert "JUPYTER_PORT" not in plan("ssh").settings
    assert "SSH_PORT" in plan("ssh").settings


def test_the_known_words_are_those_of_the_image() -> None:
    words = ["all", "bench", "code", "doctor", "jupyter", "pack", "probe", "selftest", "ssh", "train"]
    assert sorted(known_words()) == words
