"""Which base is chosen, and that a base that exists is used again."""

from __future__ import annotations

import time

import pytest

from scripts import base, names, packages, process, ui
from scripts.engine import Engine
from scripts.process import Result
from tests.static.machine import DOCKER, FakeMachine, make_machine

ENGINE = Engine(DOCKER, "docker", "26.1.5")
INSPECT = f"{DOCKER} image inspect --format {{{{.Id}}}}"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    fake = make_machine(monkeypatch)
    fake.when(INSPECT, Result(1, err="No such image"))
    monkeypatch.setattr(base, "registry_answers", lambda host: False)
    return fake


@pytest.mark.parametrize("image", ["pytorch-cuda:v2.7", "pytorch-cuda:v2.7-embedded"])
def test_an_image_that_exists_is_used_without_asking_the_registry(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    monkeypatch.setattr(base, "registry_answers", lambda host: pytest.fail("asked"))
    machine.when(f"{INSPECT} {image}", "sha256:1\n")
    machine.when(f"{INSPECT} pytorch-cuda:v2.7-", "sha256:1\n" if image.endswith("embedded") else Result(1))
    assert names.image_of(base.choose_variant(ENGINE)).startswith("pytorch-cuda:v2.7")


def test_without_the_registry_the_embedded_base_is_chosen_and_it_is_said(
    machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert base.choose_variant(ENGINE) == "embedded"
    said = capsys.readouterr().out
    assert names.public_host("base_registry") in said and "embedded base" in said


def test_with_the_registry_the_default_base_is_chosen(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "registry_answers", lambda host: True)
    assert base.choose_variant(ENGINE) == "default"


def test_the_variant_that_was_asked_for_wins(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARIANT", "default")
    assert base.choose_variant(ENGINE) == "default"


def test_an_unknown_variant_is_a_mistake(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARIANT", "emebdded")
    with pytest.raises(ui.UserError) as caught:
        base.choose_variant(ENGINE)
    assert caught.value.code == 64 and "VARIANT=emebdded" in caught.value.seen


def test_a_registry_that_never_answers_costs_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_ask_registry", lambda host, seconds: time.sleep(5))
    begun = time.monotonic()
    assert not base.registry_answers("registry.example", seconds=0.1)
    assert time.monotonic() - begun < 1


def test_a_name_that_does_not_resolve_is_no_registry() -> None:
    assert not base.registry_answers("registry.invalid", seconds=2)


def test_a_base_that_exists_is_not_made_again(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.when(INSPECT, "sha256:1\n")
    monkeypatch.setattr(process, "pipe", lambda *all: pytest.fail("made it"))
    assert base.ensure_base(ENGINE, "embedded") == "pytorch-cuda-base:embedded"


def test_a_base_gets_its_name_only_when_it_is_whole(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Result(25, err="E: setup failed: could not resolve mirror")
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/mmdebstrap")
    monkeypatch.setattr(process, "pipe", lambda *all: (failed, Result(0, "sha256:half\n")))
    with pytest.raises(ui.UserError, match="mmdebstrap trixie failed") as caught:
        base.ensure_base(ENGINE, "embedded")
    assert "could not resolve" in caught.value.seen
    assert not machine.called(f"{DOCKER} tag")


def test_a_base_is_made_of_its_own_release(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def pipe(first: list[str], *rest: object) -> tuple[Result, Result]:
        commands.append(first)
        return Result(0), Result(0, "sha256:1\n")

    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/mmdebstrap")
    monkeypatch.setattr(process, "pipe", pipe)
    machine.when(f"{DOCKER} tag", "")
    base.ensure_base(ENGINE, "glibc231")
    assert "bullseye" in commands[0]
    assert machine.called(f"{DOCKER} tag sha256:1 pytorch-cuda-base:glibc231")


def test_a_missing_mmdebstrap_is_installed(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(packages, "missing", lambda: ["mmdebstrap"])
    monkeypatch.setattr(packages, "install", lambda wanted, why: asked.append(why))
    monkeypatch.setattr(process, "pipe", lambda *all: (Result(0), Result(0, "sha256:1\n")))
    machine.when(f"{DOCKER} tag", "")
    base.ensure_base(ENGINE, "embedded")
    assert "mmdebstrap" in asked[0]
