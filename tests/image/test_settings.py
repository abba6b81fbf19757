"""Mistakes in settings: one message in three parts, exit 64, nothing else; and what only deserves a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.support.containers import Containers, Done
from tests.support.folders import Folders
from tests.support.lab import Lab

THREE_PARTS = re.compile(r"start: (?P<what>.+)\n  seen: (?P<seen>.+)\n  do:   (?P<do>.+)\n", re.DOTALL)
PUBLISH = ("--publish", "127.0.0.1::8888")


@dataclass(frozen=True)
class Mistake:
    """A start that must be refused, and a word of each part of the message."""

    name: str
    options: tuple[str, ...]
    what: str
    seen: str
    do: str
    command: tuple[str, ...] = ()


MISTAKES = (
    Mistake("mode", ("-e", "MODE=jupiter"), "MODE must be one of", "MODE=jupiter", "-e MODE=jupyter"),
    Mistake("mode-is-a-command", ("-e", "MODE=train"), "MODE", "MODE=train", "docker run IMAGE train"),
    Mistake("port", ("-e", "JUPYTER_PORT=88o8"), "from 1 to 65535", "JUPYTER_PORT=88o8", "-e JUPYTER_PORT=8888"),
    Mistake("port-too-high", ("-e", "JUPYTER_PORT=65536"), "from 1 to 65535", "65536", "-e JUPYTER_PORT=8888"),
    Mistake(
        "token-twice",
        ("-e", "JUPYTER_TOKEN=a-secret", "-e", "JUPYTER_TOKEN_FILE=/run/secrets/t"),
        "cannot both be set",
        "JUPYTER_TOKEN_FILE=/run/secrets/t",
        "leave out one",
    ),
    Mistake("token-empty", ("-e", "JUPYTER_TOKEN="), "must not be empty", "JUPYTER_TOKEN=", "JUPYTER_AUTH=none"),
    Mistake("token-blank", ("-e", "JUPYTER_TOKEN=a secret"), "without blanks", "8 characters", "-e JUPYTER_TOKEN="),
    Mistake(
        "token-file-missing",
        ("-e", "JUPYTER_TOKEN_FILE=/run/secrets/none"),
        "JUPYTER_TOKEN_FILE names cannot be read",
        "/run/secrets/none: ",
        "-e JUPYTER_TOKEN_FILE=/run/secrets/none",
    ),
    Mistake("token-file-empty", ("-e", "JUPYTER_TOKEN_FILE=/dev/null"), "JUPYTER_TOKEN_FILE", "/dev/null", ""),
    Mistake("token-file-relative", ("-e", "JUPYTER_TOKEN_FILE=token"), "absolute path", "token", "/run/secrets/token"),
    Mistake(
        "none-and-token",
        ("-e", "JUPYTER_AUTH=none", "-e", "JUPYTER_TOKEN=a-secret"),
        "cannot both be set",
        "JUPYTER_AUTH=none",
        "leave out JUPYTER_AUTH",
    ),
    Mistake("hash", ("-e", "JUPYTER_PASSWORD_HASH=argon2:"), "hash", "7 characters", "quote it"),
    Mistake("cert-alone", ("-e", "JUPYTER_CERT_FILE=/c.pem"), "HTTPS needs", "JUPYTER_KEY_FILE is not set", "key.pem"),
    Mistake(
        "cert-missing",
        ("-e", "JUPYTER_CERT_FILE=/c.pem", "-e", "JUPYTER_KEY_FILE=/k.pem"),
        "must be a certificate",
        "/c.pem: ",
        "mount both",
    ),
    Mistake("base-url", ("-e", "JUPYTER_BASE_URL=http://x/lab"), "JUPYTER_BASE_URL", "http://x/lab", "/lab1/"),
    Mistake("ssh-without-a-key", (), "ssh", "", "", ("ssh",)),
    Mistake("code-without-it", (), "code", "VS Code", "-code", ("code",)),
)
# Of every command's, so they stop a plain program too.
EVERYWHERE = (
    Mistake("puid", ("-e", "PUID=me"), "PUID must be a whole number", "PUID=me", "-e PUID=", ("true",)),
    Mistake("puid-root", ("-e", "PUID=0"), "as root", "PUID=0", "PUID=$(id -u)", ("true",)),
    Mistake("pgid", ("-e", "PGID=-1"), "PGID must be a whole number", "PGID=-1", "-e PGID=", ("true",)),
)


def check(done: Done, mistake: Mistake, code: int = 64) -> None:
    """The message has its three parts and comes last; before it stand at most notes about the machine, a line each."""
    done.ended(code)
    assert done.out == ""
    notes, start, words = done.err.rpartition("start: ")
    message = THREE_PARTS.fullmatch(start + words)
    assert message, f"not one message in three parts at the end:\n{done}"
    assert all(line.startswith("pytorch-cuda: ") for line in notes.splitlines()), f"more than notes before it:\n{done}"
    for part in ("what", "seen", "do"):
        assert getattr(mistake, part) in message[part], f"{part} lacks {getattr(mistake, part)!r}:\n{done}"
    assert "a-secret" not in done.err


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_stops_jupyterlab(containers: Containers, image: str, mistake: Mistake) -> None:
    check(containers.run(image, *mistake.command, options=mistake.options), mistake)


@pytest.mark.parametrize("mistake", EVERYWHERE, ids=lambda mistake: mistake.name)
def test_a_mistake_stops_every_command(containers: Containers, thin: str, mistake: Mistake) -> None:
    check(containers.run(thin, *mistake.command, options=mistake.options), mistake)


def test_a_mistake_in_what_a_command_does_not_use_is_none(containers: Containers, thin: str) -> None:
    options = [part for mistake in MISTAKES for part in mistake.options]
    assert containers.run(thin, "true", options=options).ok().err == ""


def test_a_gpu_that_is_demanded_and_not_there_stops_the_start(containers: Containers, image: str) -> None:
    mistake = Mistake("gpu", ("-e", "REQUIRE_GPU=1"), "no GPU", "/dev/nvidia0", "--gpus all")
    for command in ((), ("train",)):
        check(containers.run(image, *command, options=mistake.options), mistake)


def test_kubernetes_service_links_are_one_line_each_and_not_passed_on(containers: Containers, image: str) -> None:
    links = ["-e", "JUPYTER_PORT=tcp://10.0.0.1:80", "-e", "SSH_PORT=tcp://10.0.0.1:22"]
    container = containers.start(image, options=[*links, *PUBLISH])
    lab = Lab.of(container)
    assert lab.run("import os; print([n for n in os.environ if n in ('JUPYTER_PORT', 'SSH_PORT')])") == "[]\n"
    for name in ("JUPYTER_PORT", "SSH_PORT"):
        lines = [line for line in container.log().splitlines() if name in line]
        assert len(lines) == 1, lines
        assert "Kubernetes Service and is ignored" in lines[0]


def test_empty_settings_are_unset_ones(containers: Containers, image: str) -> None:
    """What a compose file passes on when nothing is set."""
    names = ("MODE", "JUPYTER_TOKEN_FILE", "JUPYTER_PASSWORD_HASH", "JUPYTER_AUTH", "JUPYTER_PORT", "PUID", "PGID")
    options = [part for name in (*names, "REQUIRE_GPU", "SSH_PUBLIC_KEY") for part in ("--env", f"{name}=")]
    assert Lab.of(containers.start(image, options=[*options, *PUBLISH])).lets_in()


def test_a_port_that_is_taken_ends_the_container_with_the_reason(
    containers: Containers, image: str, shared_containers: Containers
) -> None:
    """With the host's network two containers meet on one port."""
    first = shared_containers.start(image, options=["--network", "host", "--env", "JUPYTER_PORT=28888"])
    lab = Lab("http://127.0.0.1:28888/", "", first)
    lab.wait()
    done = containers.run(image, options=["--network", "host", "--env", "JUPYTER_PORT=28888"])
    assert done.code not in (0, 137, 143), done
    assert "Traceback" not in done.err
    assert "28888" in done.err.rpartition("http://")[2], done
    assert done.err.count("start: ") == 1, done


def test_the_port_option_of_docker_names_a_port_that_is_taken(containers: Containers, thin: str) -> None:
    """Docker's own message: our part is that nothing of ours hides it."""
    container = containers.start(thin, "sleep", "600", options=["--publish", "127.0.0.1::8888"])
    port = container.port(8888)
    done = containers.run(thin, "true", options=["--publish", f"127.0.0.1:{port}:8888"])
    assert done.code == 125
    assert str(port) in done.err


def test_a_hook_that_fails_stops_the_start_and_is_named(containers: Containers, image: str, folders: Folders) -> None:
    hooks = folders.new()
    folders.file(hooks / "10-say-hello", "#!/bin/sh\necho hello from $(id -u)\n", 0o755)
    folders.file(hooks / "20-check-license", "#!/bin/sh\necho no license >&2\nexit 7\n", 0o755)
    folders.file(hooks / "30-never-run", "#!/bin/sh\necho too far\n", 0o755)
    done = containers.run(image, options=["--volume", f"{hooks}:/etc/pytorch-cuda/start.d:ro"]).ended(7)
    assert done.out == ""
    said = done.err.splitlines()
    assert said[:2] == ["hello from 1000", "no license"]
    assert said[2].startswith("start: the start hook 20-check-license failed")
    assert "/etc/pytorch-cuda/start.d/20-check-license: it ended with exit status 7" in said[3]
    assert "too far" not in done.err
    assert "JupyterLab: " not in done.err


def test_hooks_run_in_order_as_the_user_before_the_services_and_not_before_a_command(
    containers: Containers, image: str, folders: Folders
) -> None:
    hooks, work = folders.new(), folders.new((4321, 4321))
    script = '#!/bin/sh\necho "$0 $(id -u) $HOME" >> /workspace/code/order\n'
    for name in ("20-second", "10-first"):
        folders.file(hooks / name, script, 0o755)
    mounts = ["--volume", f"{hooks}:/etc/pytorch-cuda/start.d:ro", "--volume", f"{work}:/workspace/code"]
    containers.run(image, "true", options=mounts).ok()
    assert not (work / "order").exists()
    container = containers.start(image, options=mounts)
    container.wait_for_line("JupyterLab: ")
    folder = "/etc/pytorch-cuda/start.d"
    assert (work / "order").read_text().splitlines() == [
        f"{folder}/10-first 4321 /home/user",
        f"{folder}/20-second 4321 /home/user",
    ]
