"""The compose files: they render in both forms without a warning, and hold what the contract says of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from entrypoint.settings import TABLE
from scripts import compose, container, names
from scripts.engine import clients

TEXT = compose.FILE.read_text(encoding="utf-8")
EXAMPLE = (names.ROOT / ".env.example").read_text(encoding="utf-8")
FORMS = {"gpu": compose.files(True), "cpu": compose.files(False)}


def render(files: list[Path], env_file: str = os.devnull, **environ: str) -> tuple[dict[str, Any], str]:
    """Let the real compose put the files together; what it makes of them, and what it complains of."""
    if not clients():
        pytest.skip("no docker command here: `docker compose config` renders the files")
    named = [part for file in files if file != compose.OF_THE_USER for part in ("--file", str(file))]
    done = subprocess.run(
        [clients()[0], "compose", "--env-file", env_file, *named, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(params=FORMS)
def rendered(request: pytest.FixtureRequest) -> dict[str, Any]:
    seen, complaints = render(FORMS[request.param])
    assert not complaints
    lab: dict[str, Any] = seen["services"]["lab"]
    return lab


def test_it_renders_without_a_warning_where_nothing_is_set(rendered: dict[str, Any]) -> None:
    assert rendered["image"] == "pytorch-cuda:v2.7"
    assert not [name for name, value in rendered["environment"].items() if value is not None]


def test_every_port_is_published_on_the_loopback(rendered: dict[str, Any]) -> None:
    published = {port["target"]: (port["host_ip"], port["published"]) for port in rendered["ports"]}
    assert published == {8888: ("127.0.0.1", "8888"), 22: ("127.0.0.1", "2222")}


def test_dev_shm_is_larger_than_the_engines_64_mb(rendered: dict[str, Any]) -> None:
    assert int(rendered["shm_size"]) >= 10**9


def test_nothing_that_a_machine_may_refuse_or_that_is_the_images_own(rendered: dict[str, Any]) -> None:
    assert not {"init", "ulimits", "healthcheck", "privileged", "ipc", "command", "build"} & {
        key for key, value in rendered.items() if value is not None
    }


def test_home_host_keys_and_work_outlive_the_container(rendered: dict[str, Any]) -> None:
    kept = {volume["target"]: volume["type"] for volume in rendered["volumes"]}
    assert kept == {
        "/workspace/code": "bind",
        "/workspace": "volume",
        "/home/user": "volume",
        "/etc/ssh/host_keys": "volume",
    }


def test_one_form_asks_for_every_gpu_and_the_other_for_none() -> None:
    gpu, cpu = (render(files)[0]["services"]["lab"] for files in FORMS.values())
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", -1, ["gpu"])
    assert "deploy" not in cpu
    del gpu["deploy"]
    assert gpu == cpu


def test_every_setting_is_passed_on(rendered: dict[str, Any]) -> None:
    # What compose itself publishes, what takes a file inside, and what belongs to the variant with another port.
    left_out = {*container.FILES, "SSH_PORT", "JUPYTER_PORT", "CODE_PORT", "CODE_TOKEN"}
    assert set(rendered["environment"]) == {row.name for row in TABLE} - left_out | {"TZ"}


def test_env_example_has_every_variable_and_works_when_all_of_it_is_used(tmp_path: Path) -> None:
    # NAME belongs on the command line, where `make ssh` and `make logs` read it too.
    passed = set(render(FORMS["gpu"])[0]["services"]["lab"]["environment"])
    used = set(re.findall(r"\$\{(\w+)", TEXT)) - {"NAME"} | passed
    assert set(re.findall(r"(?m)^#(\w+)=", EXAMPLE)) == used
    env_file = tmp_path / ".env"
    env_file.write_text(re.sub(r"(?m)^#(\w+=)", r"\1", EXAMPLE))
    seen, complaints = render(FORMS["gpu"], str(env_file))
    assert not complaints
    environment = seen["services"]["lab"]["environment"]
    assert environment["JUPYTER_PASSWORD_HASH"].replace("$$", "$").startswith("argon2:$argon2id$v=19$")
    assert all(environment.values())


def test_the_token_reaches_the_service_from_the_shell_too() -> None:
    seen, complaints = render(FORMS["cpu"], JUPYTER_TOKEN="given", BIND="0.0.0.0", PORT="9000")
    assert seen["services"]["lab"]["environment"]["JUPYTER_TOKEN"] == "given"
    assert seen["services"]["lab"]["labels"][container.PUBLISHED_LABEL] == "0.0.0.0:9000:2222"
    assert not complaints


def test_the_users_own_env_file_is_never_committed() -> None:
    ignored = (names.ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/.env", "/docker-compose.override.yml"} <= set(ignored)
