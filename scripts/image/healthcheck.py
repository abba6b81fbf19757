"""Is the container healthy? Asks each service that the entrypoint wrote down; none expected is healthy.

Run by the engine every 30 s with root's interpreter, so it imports only what it needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
import time
from typing import Any, Optional

TIME_LIMIT = 5.0
# sshd logs every visit, twice a minute for ever: between two questions it is enough that it still listens.
ASK_AGAIN = 600.0
_LISTEN = "0A"  # the kernel's number for that state in /proc/net/tcp


class UnhealthyError(Exception):
    """Why the container is not healthy, in one line."""


def main(folders: tuple[str, ...], time_limit: float = TIME_LIMIT) -> int:
    """Print one line and return 0 (healthy) or 1."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, time_limit)
    try:
        names = [_probe(service) for service in read_services(folders)]
    except (UnhealthyError, TimeoutError) as error:
        print(f"unhealthy: {error}")
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"healthy: {', '.join(names) if names else 'no service expected'}")
    return 0


def run_folders(uid: int) -> tuple[str, ...]:
    """Where the entrypoint keeps its files, as root and not as root."""
    return "/run/pytorch-cuda", f"/tmp/pytorch-cuda-{uid}"


def read_services(folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """The services of the first folder that has a list which root or this user wrote."""
    for folder in folders:
        data = _read_trusted(folder, os.path.join(folder, "services.json"))
        if data is None:
            continue
        try:
            return [{**service, "folder": folder} for service in json.loads(data)["services"]]
        except (ValueError, KeyError, TypeError):
            raise UnhealthyError(f"{folder}/services.json is damaged; restart the container") from None
    return []


def _read_trusted(folder: str, path: str) -> Optional[bytes]:
    """The file's content, or None when it is missing or somebody else could have written it."""
    trusted = {0, os.getuid()}
    try:
        above = os.lstat(folder)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if stat.S_ISREG(info.st_mode) and stat.S_ISDIR(above.st_mode) and {info.st_uid, above.st_uid} <= trusted:
            return file.read()
    return None


def _probe(service: dict[str, Any]) -> str:
    name, kind = str(service.get("name")), service.get("probe")
    try:
        if kind == "http":
            _probe_http(str(service["url"]))
        elif kind == "banner":
            _probe_sshd(int(service["port"]), service["folder"])
        elif kind == "starting":
            raise UnhealthyError(f"{name} is still starting")
        else:
            raise UnhealthyError(f"{name}: unknown probe {kind!r}")
    except (OSError, ValueError, KeyError) as error:
        raise UnhealthyError(f"{name} does not answer: {error}") from error
    return name


def _probe_http(url: str) -> None:
    import http.client
    from urllib.parse import urlsplit

    address = urlsplit(url)
    try:
        connection = _connection(address.scheme, address.hostname or "", address.port)
        connection.request("GET", address.path)
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(f"{url}: {error!r}") from error
    # A server that asks for a login is up, too.
    if status >= 400 and status not in (401, 403):
        raise OSError(f"{url} answered {status}")


def _connection(scheme: str, host: str, port: Optional[int]) -> Any:
    import http.client

    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIME_LIMIT)
    import ssl

    # Our own server on the loopback, whose certificate is made out to another name.
    return http.client.HTTPSConnection(host, port, timeout=TIME_LIMIT, context=ssl._create_unverified_context())


def _probe_sshd(port: int, folder: str, net: str = "/proc/net") -> None:
    answered = os.path.join(folder, "sshd-answered")
    if _is_fresh(answered, os.path.join(folder, "services.json")) and _listens(port, net):
        return
    _probe_banner(port)
    # Whoever runs the check may not be whoever wrote the list: then it asks each time.
    with contextlib.suppress(OSError):
        os.close(os.open(answered, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        os.utime(answered, follow_symlinks=False)


def _is_fresh(answered: str, written: str) -> bool:
    """Whether sshd answered in this start of the container, and not long ago."""
    try:
        last = os.lstat(answered).st_mtime
        return os.lstat(written).st_mtime < last and 0 <= time.time() - last < ASK_AGAIN
    except OSError:
        return False


def _listens(port: int, net: str) -> bool:
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"{net}/{name}", encoding="ascii") as file:
            rows = [line.split() for line in file]
            if any(len(row) > 3 and row[1].endswith(wanted) and row[3] == _LISTEN for row in rows):
                return True
    return False


def _probe_banner(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIME_LIMIT) as connection:
        banner = connection.recv(256)
        if banner.startswith(b"SSH-"):
            # Politely, sshd has one line less to log.
            connection.sendall(b"SSH-2.0-healthcheck\r\n")
    if not banner.startswith(b"SSH-"):
        raise OSError(f"port {port} sent no SSH banner")


def _too_late(*_: object) -> None:
    raise TimeoutError("no answer within the time limit")


if __name__ == "__main__":
    sys.exit(main(run_folders(os.getuid())))
