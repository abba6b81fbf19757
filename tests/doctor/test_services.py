"""Services that do not answer, keys that are missing, a token that anybody may read."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from doctor import services
from tests.doctor.patients import fine, patient, skipped, trouble, write

RUN = "/run/pytorch-cuda"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHcz0S3rCqXcmcYVrLZLXlEvTPcFqPkzC0mVt3c4YkXN somebody@laptop"


def recorded(*entries: dict[str, object]) -> dict[str, str]:
    """What the start writes down of its services."""
    return {f"{RUN}/services.json": json.dumps({"version": 1, "services": list(entries)})}


def lab(port: int) -> dict[str, object]:
    return {"name": "jupyter", "probe": "http", "url": f"http://127.0.0.1:{port}/api"}


def sshd(port: int) -> dict[str, object]:
    return {"name": "sshd", "probe": "banner", "port": port}


@contextmanager
def listener(says: bytes = b"") -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(4)

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_a_service_on_a_closed_port(tmp_path: Path) -> None:
    port = closed_port()
    write(tmp_path, recorded(lab(port)))
    found = services.check_ports(patient(tmp_path))
    trouble(found, "fail", f"jupyter does not answer: port {port}", "docker logs")


def test_an_ssh_port_on_which_something_else_listens(tmp_path: Path) -> None:
    with listener(b"HTTP/1.1 400") as port:
        write(tmp_path, recorded(sshd(port)))
        trouble(services.check_ports(patient(tmp_path)), "fail", "sends no SSH banner", "docker restart")


def test_services_that_answer(tmp_path: Path) -> None:
    with listener() as web, listener(b"SSH-2.0-OpenSSH_10.0\r\n") as shell:
        write(tmp_path, recorded(lab(web), sshd(shell)))
        fine(services.check_ports(patient(tmp_path)), "jupyter answers, sshd answers")


def test_no_service(tmp_path: Path) -> None:
    for check in (services.check_ports, services.check_token, services.check_keys, services.check_host_keys):
        assert check(patient(tmp_path)).status == "skip"


def test_a_damaged_list_of_services(tmp_path: Path) -> None:
    write(tmp_path, {f"{RUN}/services.json": "{"})
    skipped(services.check_ports(patient(tmp_path)), "no service")


def test_a_token_that_others_may_read(tmp_path: Path) -> None:
    write(tmp_path, {**recorded(lab(1)), f"{RUN}/token": "do-not-show-this"})
    (tmp_path / f"{RUN}/token".lstrip("/")).chmod(0o644)
    found = services.check_token(patient(tmp_path))
    trouble(found, "warn", "has mode 0644", "chmod 600")
    assert "do-not-show" not in repr(found)


def test_no_login_at_all(tmp_path: Path) -> None:
    write(tmp_path, recorded(lab(1)))
    found = services.check_token(patient(tmp_path, {"JUPYTER_AUTH": "none"}))
    trouble(found, "warn", "there is no login", "127.0.0.1 only")


def test_a_token_of_its_owners(tmp_path: Path) -> None:
    write(tmp_path, {**recorded(lab(1)), f"{RUN}/token": "x"})
    (tmp_path / f"{RUN}/token".lstrip("/")).chmod(0o600)
    fine(services.check_token(patient(tmp_path)))


def test_sshd_without_a_key(tmp_path: Path) -> None:
    write(tmp_path, {**recorded(sshd(22)), f"{RUN}/authorized_keys.d/user": "# none\nssh-ed25519 cut\n"})
    trouble(services.check_keys(patient(tmp_path)), "fail", "no public key may log in", "SSH_PUBLIC_KEY")


def test_sshd_with_keys(tmp_path: Path) -> None:
    write(tmp_path, {**recorded(sshd(22)), f"{RUN}/authorized_keys.d/user": f"{KEY}\nrestrict {KEY}\n"})
    found = services.check_keys(patient(tmp_path))
    fine(found, "2 public keys")
    assert "AAAA" not in repr(found)


def test_host_keys_of_this_container_alone(tmp_path: Path) -> None:
    write(tmp_path, recorded(sshd(22)))
    found = services.check_host_keys(patient(tmp_path))
    fine(found, "made for this container")
    assert "-v pytorch-host-keys:/etc/ssh/host_keys" in found.why


def test_host_keys_on_a_volume(tmp_path: Path) -> None:
    mounts = "31 30 0:26 / /etc/ssh/host_keys rw - ext4 /dev/sda rw\n"
    write(tmp_path, {**recorded(sshd(22)), "/proc/self/mountinfo": mounts})
    fine(services.check_host_keys(patient(tmp_path)), "kept on the volume")
