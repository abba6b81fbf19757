"""The health check: what it trusts, and what it asks."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import socket
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "image" / "healthcheck.py"


@pytest.fixture(scope="module")
def healthcheck() -> Any:
    spec = importlib.util.spec_from_file_location("healthcheck", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(healthcheck: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Write the services down, run the check, return its status and its one line."""

    def run(*services: Any, content: Any = None, time_limit: Any = 5.0) -> Any:
        text = json.dumps({"version": 1, "services": list(services)}) if content is None else content
        (tmp_path / "services.json").write_text(text)
        return again(time_limit)

    def again(time_limit: Any = 5.0) -> Any:
        status = healthcheck.main((str(tmp_path),), time_limit)
        return status, capsys.readouterr().out

    run.again = again  # type: ignore[attr-defined]
    return run


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = {"/base/api": 200, "/login": 403, "/broken": 500}
        self.send_response(known.get(self.path, 404))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(tls: Any = None) -> Any:
    server = HTTPServer(("127.0.0.1", 0), _Answer)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def saying(banner: Any) -> Any:
    """A server that sends its banner and then waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                connection.sendall(banner)
                while connection.recv(4096):
                    pass
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]


def http(url: Any) -> Any:
    return {"name": "jupyter", "probe": "http", "url": url}


def sshd(port: Any) -> Any:
    return {"name": "sshd", "probe": "banner", "port": port}


def closed_port() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_no_list_and_an_empty_list_are_healthy(
    healthcheck: Any, check: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert healthcheck.main((str(tmp_path / "missing"),)) == 0
    assert capsys.readouterr().out == "healthy: no service expected\n"
    assert check() == (0, "healthy: no service expected\n")


def test_a_service_that_answers_is_healthy(check: Any) -> None:
    with serving() as port:
        assert check(http(f"http://127.0.0.1:{port}/base/api")) == (0, "healthy: jupyter\n")


def test_a_service_that_asks_for_a_login_is_up(check: Any) -> None:
    with serving() as port:
        assert check(http(f"http://127.0.0.1:{port}/login"))[0] == 0


@pytest.mark.parametrize(("path", "status"), [("/broken", "500"), ("/other/api", "404")])
def test_a_service_that_answers_with_an_error_is_not_healthy(check: Any, path: Any, status: Any) -> None:
    with serving() as port:
        code, line = check(http(f"http://127.0.0.1:{port}{path}"))
    assert code == 1
    assert "jupyter" in line and status in line
    assert line.count("\n") == 1


def test_a_service_that_is_not_there_is_not_healthy(check: Any) -> None:
    code, line = check(http(f"http://127.0.0.1:{closed_port()}/api"))
    assert (code, line.startswith("unhealthy: jupyter does not answer")) == (1, True)


def test_https_with_a_certificate_of_another_name_is_healthy(check: Any, tmp_path: Path) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    make = shlex.split("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=o -days 2")
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    with serving(tls) as port:
        assert check(http(f"https://127.0.0.1:{port}/base/api"))[0] == 0


def test_a_server_that_speaks_no_http_is_not_healthy(check: Any) -> None:
    with saying(b"nonsense\r\n\r\n") as port:
        assert check(http(f"http://127.0.0.1:{port}/api"))[0] == 1


def test_an_ssh_banner_is_healthy_and_another_is_not(check: Any) -> None:
    with saying(b"SSH-2.0-OpenSSH_9.9\r\n") as port:
        assert check(sshd(port)) == (0, "healthy: sshd\n")
    with saying(b"220 smtp\r\n") as port:
        assert check(sshd(port))[0] == 1


def test_sshd_is_asked_once_and_then_only_has_to_listen(check: Any, tmp_path: Path) -> None:
    """It logs every visit. When it listens no more, it is asked again, and that shows."""
    visits: list[Any] = []

    def visit() -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-x\r\n")
            visits.append(connection.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=visit, daemon=True)
        thread.start()
        assert check(sshd(port))[0] == 0
        thread.join(5)
        assert _again(check, tmp_path, port)[0] == 0
    assert visits == [b"SSH-2.0-healthcheck\r\n"]
    assert _again(check, tmp_path, port)[0] == 1


def _again(check: Any, folder: Path, port: Any) -> Any:
    """As `check` does, on a list that is older than the last answer."""
    written = json.dumps({"version": 1, "services": [sshd(port)]})
    (folder / "services.json").write_text(written)
    os.utime(folder / "services.json", (1, 1))
    return check.again()


def test_an_answer_of_an_earlier_start_does_not_count(check: Any, tmp_path: Path) -> None:
    (tmp_path / "sshd-answered").touch()
    os.utime(tmp_path / "sshd-answered", (1, 1))
    assert check(sshd(closed_port()))[0] == 1


def test_one_service_of_two_that_is_down_is_not_healthy(check: Any) -> None:
    with saying(b"SSH-2.0-x\r\n") as port:
        code, line = check(sshd(port), http(f"http://127.0.0.1:{closed_port()}/api"))
    assert code == 1
    assert "jupyter" in line


@pytest.mark.parametrize("probe", ["http", "banner"])
def test_a_silent_server_ends_at_the_time_limit(check: Any, probe: Any) -> None:
    with saying(b"") as port:
        begin = time.monotonic()
        service = sshd(port) if probe == "banner" else http(f"http://127.0.0.1:{port}/api")
        code, line = check(service, time_limit=0.2)
    assert time.monotonic() - begin < 2
    assert code == 1
    assert "time limit" in line


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"version": 1}', '{"services": 3}'])
def test_a_damaged_list_is_not_healthy(check: Any, content: Any) -> None:
    code, line = check(content=content)
    assert (code, "damaged" in line) == (1, True)


def test_a_start_that_is_not_through_is_not_healthy(check: Any) -> None:
    assert check({"name": "the container", "probe": "starting"}) == (1, "unhealthy: the container is still starting\n")


def test_an_unknown_probe_is_not_healthy(check: Any) -> None:
    assert check({"name": "x", "probe": "magic"}) == (1, "unhealthy: x: unknown probe 'magic'\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
@pytest.mark.parametrize("foreign", ["services.json", "."])
def test_a_list_that_another_user_could_write_is_not_trusted(
    healthcheck: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], foreign: Any
) -> None:
    (tmp_path / "services.json").write_text("not json")
    os.chown(tmp_path / foreign, 1234, 1234)
    assert healthcheck.main((str(tmp_path),)) == 0
    assert "no service expected" in capsys.readouterr().out


def test_a_link_in_place_of_the_list_is_not_followed(healthcheck: Any, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("not json")
    (tmp_path / "services.json").symlink_to("real")
    assert healthcheck.main((str(tmp_path),)) == 0


def test_the_first_folder_with_a_list_counts(healthcheck: Any, tmp_path: Path) -> None:
    for name, content in (("b", '{"services": []}'), ("c", "not json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "services.json").write_text(content)
    folders = tuple(str(tmp_path / name) for name in "abc")
    assert healthcheck.main(folders) == 0


def test_it_looks_where_root_and_where_the_user_keep_their_files(healthcheck: Any) -> None:
    assert healthcheck.run_folders(4321) == ("/run/pytorch-cuda", "/tmp/pytorch-cuda-4321")
