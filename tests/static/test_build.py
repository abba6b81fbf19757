"""The build: its command line, what stops it before it begins, and how its failures are told."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import base, build, names, ui
from scripts.engine import Engine
from scripts.process import Result
from tests.static.machine import DOCKER, FakeMachine, make_machine

ENGINE = Engine(DOCKER, "docker", "26.1.5")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    fake = make_machine(monkeypatch)
    fake.when(f"{DOCKER} image inspect", Result(1))
    fake.when(f"{DOCKER} info --format {{{{.DockerRootDir", "/\n")
    monkeypatch.setattr(base, "ensure_base", lambda engine, name: name)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100 * build.GIGABYTE))
    return fake


def test_the_bake_file_is_always_named(machine: FakeMachine) -> None:
    command = build.bake_command(ENGINE, ["embedded"])
    assert command[command.index("--file") + 1].endswith("/docker-bake.hcl")


def test_the_hosts_ca_bundle_goes_in_as_a_secret(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    assert f"*.secrets=id=ca_bundle,src={tmp_path}/ca.crt" in build.bake_command(ENGINE, ["embedded"])


def test_a_proxy_reaches_the_build(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert "*.args.HTTPS_PROXY=http://proxy.example:3128" in build.bake_command(ENGINE, ["embedded"])


def test_the_callers_image_does_not_rename_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGE", "mine:1")
    monkeypatch.setenv("BUILDX_BUILDER", "elsewhere")
    environ = build.bake_environ()
    assert "IMAGE" not in environ and "BUILDX_BUILDER" not in environ
    assert environ["SOURCE_DATE_EPOCH"] == names.source_date_epoch()


@pytest.mark.parametrize(
    ("targets", "bases"),
    [
        (["default"], []),
        (["embedded", "embedded-thin", "browser"], ["embedded"]),
        (["glibc231-thin", "glibc-check"], ["glibc231"]),
    ],
)
def test_the_bases_of_the_targets_are_made_first(targets: list[str], bases: list[str]) -> None:
    assert build.bases_of(targets) == bases


def test_the_names_of_images_are_those_of_the_bake_file() -> None:
    text = (names.ROOT / "docker-bake.hcl").read_text(encoding="utf-8").replace("${IMAGE}", "pytorch-cuda:v2.7")
    text = text.replace("tags     = [IMAGE]", 'tags     = ["pytorch-cuda:v2.7"]')
    for target in names.bake_targets():
        row = text.partition(f'target "{target}"')[2].partition("\n}")[0]
        assert f'"{names.image_of(target)}"' in row, target


def test_too_little_disk_space_stops_a_first_build(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=7 * build.GIGABYTE))
    with pytest.raises(ui.UserError, match="not enough disk space") as caught:
        build.build(ENGINE, ["embedded"])
    assert "7 GB are free" in caught.value.seen and "25 GB" in caught.value.seen
    machine.when(f"{DOCKER} image inspect", "sha256:1\n")
    machine.when(f"{DOCKER} buildx bake", "")
    build.build(ENGINE, ["embedded"])


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("#9 12.3 error: No space left on device (os error 28)", "the disk is full"),
        ("#9 12.3 W: Failed to fetch http://m/dists/x  Temporary failure resolving 'm'", "package index"),
        ("#9 12.3 error: Request failed after 3 retries\n#9 Caused by: dns error", "package index"),
        ("#9 12.3 invalid peer certificate: UnknownIssuer", "package index"),
        ("#9 12.3 assert failed", "the build of embedded failed"),
    ],
)
def test_a_failed_build_says_why(machine: FakeMachine, said: str, what: str) -> None:
    machine.when(f"{DOCKER} buildx bake", Result(1, said))
    with pytest.raises(ui.UserError) as caught:
        build.build(ENGINE, ["embedded"])
    assert what in caught.value.what and caught.value.seen and caught.value.code == 1


def test_the_long_steps_are_told_with_their_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    progress = build.Progress()
    for line in (
        "#5 [embedded wheels 2/3] RUN install",
        "#5 41.2 Installed 141 packages",
        "#6 [embedded system 1/2] COPY x",
        "#5 DONE 41.3s",
        "#6 DONE 0.1s",
    ):
        progress.read(line)
    said = capsys.readouterr().out
    assert "41.3 s  [embedded wheels 2/3] RUN install" in said and "COPY" not in said


def test_make_build_builds_what_exists_too(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.has_docker()
    machine.when(f"{DOCKER} image inspect", "sha256:1\n")
    machine.when(f"{DOCKER} buildx bake", "")
    monkeypatch.setenv("VARIANT", "embedded")
    monkeypatch.setattr("sys.argv", ["build"])
    assert build.main() == 0
    assert machine.called(f"{DOCKER} buildx bake")
