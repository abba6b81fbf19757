"""The modes with sshd: what starts, what is said, on which port, and what can still run when something is wrong."""

from __future__ import annotations

import json
import socket

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.lab import Lab
from tests.support.laptop import Laptop, Servers
from tests.support.wait import until

PUBLISH = ("--publish", "127.0.0.1::8888")
QUICK = ("--health-interval", "1s", "--health-start-period", "30s")


def services(container: Tracked) -> list[str]:
    listed = json.loads(container.exec("cat", "/run/pytorch-cuda/services.json").ok().out)
    return [service["name"] for service in listed["services"]]


def wait_until_healthy(container: Tracked) -> None:
    until(
        "the health to change",
        lambda: container.state["Health"]["Status"] == "healthy" or None,
        lambda: f"{container.state['Health']}\n{container.log()}",
    )


@pytest.mark.parametrize("words", [("", "auto"), ("", "all"), ("all", "jupyter")])
def test_both_services_run_are_healthy_and_tell_how_to_come_in(
    servers: Servers, laptop: Laptop, image: str, words: tuple[str, str]
) -> None:
    command, mode = words
    container = servers.start(image, *PUBLISH, *QUICK, "--env", f"MODE={mode}", mode=command)
    assert Lab.of(container).lets_in()
    laptop.ssh(container, "true").ok()
    assert services(container) == ["sshd", "jupyter"]
    log = container.log()
    assert "sshd: port 22; after docker run -p 2222:22 log in with: ssh -p 2222 user@HOST" in log
    assert "sshd is off" not in log
    wait_until_healthy(container)


def test_without_a_key_auto_is_jupyterlab_and_one_line_that_tells_how(containers: Containers, image: str) -> None:
    container = containers.start(image, options=PUBLISH)
    Lab.of(container)
    lines = [line for line in container.log().splitlines() if "ssh" in line]
    assert lines == [
        "pytorch-cuda: sshd is off; this turns it on: "
        'docker run -p 2222:22 -e SSH_PUBLIC_KEY="$(cat ~/.ssh/id_ed25519.pub)" ...'
    ]
    assert services(container) == ["jupyter"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--env", "SSH_PUBLIC_KEY=nonsense"), "SSH_PUBLIC_KEY, line 1: it is neither"),
        (("--env", "SSH_PUBLIC_KEY_FILE=/no/such/file"), "/no/such/file: there is no such file"),
        (("--user", "12345:0", "--env", "SSH_PUBLIC_KEY={key}"), "needs a container that starts as root"),
        (("--cap-drop", "ALL", "--env", "SSH_PUBLIC_KEY={key}"), "missing here: SETUID"),
    ],
)
def test_where_sshd_cannot_run_auto_is_jupyterlab_with_the_reason(
    containers: Containers, laptop: Laptop, image: str, options: tuple[str, ...], why: str
) -> None:
    given = [option.replace("{key}", laptop.public.strip()) for option in options]
    expect = (rf"warning: sshd is not started: .*{why}",)
    container = containers.start(image, options=[*PUBLISH, *given], expect=expect)
    assert Lab.of(container).lets_in()


def test_the_word_jupyter_starts_no_sshd_and_says_nothing_of_it(
    containers: Containers, laptop: Laptop, image: str
) -> None:
    container = containers.start(image, "jupyter", options=[*PUBLISH, "--env", f"SSH_PUBLIC_KEY={laptop.public}"])
    Lab.of(container)
    assert "ssh" not in container.log()


def test_another_port(servers: Servers, laptop: Laptop, thin: str) -> None:
    container = servers.start(thin, "--env", "SSH_PORT=2200", *QUICK, port=2200)
    laptop.ssh(container, "true", port=2200).ok()
    wait_until_healthy(container)
    assert "-p 2222:2200" in container.log()


def test_the_health_follows_sshd_and_its_checks_do_not_fill_the_log(servers: Servers, lean: str) -> None:
    container = servers.start(lean, *QUICK)
    wait_until_healthy(container)
    until("the health to change", lambda: len(container.state["Health"]["Log"]) >= 4 or None, container.log)
    assert len([line for line in container.log().splitlines() if "127.0.0.1" in line]) <= 1


def test_a_taken_port_under_host_networking_is_explained(containers: Containers, lean: str, laptop: Laptop) -> None:
    options = ["--network", "host", "--env", f"SSH_PUBLIC_KEY={laptop.public}"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = containers.run(lean, "ssh", options=[*options, "--env", f"SSH_PORT={port}"]).ended(64)
    what, seen, do = done.err.splitlines()
    assert what == f"start: sshd cannot listen on port {port}"
    assert "the host's own sshd" in seen
    assert "SSH_PORT=2222" in do


def test_a_free_port_under_host_networking_works(servers: Servers, lean: str) -> None:
    """Asked from this machine: the laptop has a network of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    container = servers.start_only(lean, "--network", "host", "--env", f"SSH_PORT={port}")
    container.wait_for_line(rf"listening on \S+ port {port}")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        assert connection.recv(4) == b"SSH-"


def test_hooks_are_not_run_before_a_refusal(containers: Containers, lean: str) -> None:
    """A hook may take minutes: who forgot the key is told at once."""
    done = containers.run(lean, "sh", "-c", "true")
    options = ["--env", "SSH_PUBLIC_KEY=", "--tmpfs", "/etc/pytorch-cuda/start.d:exec"]
    assert done.ok().err == ""
    assert "needs a public key" in containers.run(lean, "ssh", options=options).ended(64).err


@pytest.mark.parametrize("granted", [False, True])
def test_sudo_is_there_only_on_request(servers: Servers, laptop: Laptop, thin: str, granted: bool) -> None:
    container = servers.start(thin, *(("--env", "GRANT_SUDO=1") if granted else ()))
    done = laptop.ssh(container, "sudo -n id -u")
    if granted:
        assert done.ok().out == "0\n"
        assert laptop.ssh(container, "sudo id -u", options=["-tt"]).ok().out.strip() == "0"
    else:
        assert done.ended(1).out == ""


def test_no_secret_is_in_the_arguments_the_log_or_the_description(servers: Servers, laptop: Laptop, lean: str) -> None:
    container = servers.start(lean)
    laptop.ssh(container, "true").ok()
    for path in ("/run/pytorch-cuda/host_keys/ssh_host_ed25519_key", "/run/pytorch-cuda/host_keys/ssh_host_rsa_key"):
        secret = container.exec("sed", "-n", "3p", path).ok().out.strip()
        shown = json.dumps(container.inspect()) + container.log() + str(container.container.top(ps_args="-ef"))
        assert len(secret) > 20
        assert secret not in shown
        assert container.exec("cat", path, user="user").code != 0
    for path in ("/run/pytorch-cuda/sshd_config", "/run/pytorch-cuda/environment.sh"):
        assert container.exec("stat", "-c", "%U %a", path).ok().out.split()[1] in ("600", "640")
