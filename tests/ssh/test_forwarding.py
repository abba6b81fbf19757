"""What VS Code and its users need beside a shell: ports, sockets, an agent, many sessions, and a line that stays up."""

from __future__ import annotations

import shlex
import time

import pytest

from tests.ssh.conftest import IDLE_SECONDS, Idle
from tests.support.containers import Tracked
from tests.support.laptop import Laptop
from tests.support.wait import until

# Answers every connection to a port, or to a socket, with a greeting. Closed by the end of its container.
GREET = """
import socket, sys
where = sys.argv[1]
server = socket.create_server(("127.0.0.1", int(where))) if where.isdigit() else socket.socket(socket.AF_UNIX)
if not where.isdigit():
    server.bind(where)
    server.listen()
while True:
    connection, _ = server.accept()
    connection.sendall(b"hello")
    connection.close()
"""
ASK = """
import socket, sys
where = sys.argv[1]
client = socket.create_connection(("127.0.0.1", int(where))) if where.isdigit() else socket.socket(socket.AF_UNIX)
if not where.isdigit():
    client.connect(where)
print(client.recv(9).decode())
"""
LISTENS = "grep -c ' {address}:1B5C .* 0A ' /proc/net/tcp"  # 7004
LOOPBACK, ANY = "0100007F", "00000000"


def run(program: str, where: str) -> str:
    """The command line of a small Python program."""
    return f"python3 -c {shlex.quote(program)} {where}"


@pytest.fixture(scope="module")
def busy(server: Tracked, laptop: Laptop) -> Tracked:
    """The server with something that answers on a port and on a socket of its own."""
    for where in ("7000", "/tmp/s"):
        laptop.ssh(server, f"{run(GREET, where)} >/dev/null 2>&1 </dev/null & sleep 0.5").ok()
    return server


def forward(laptop: Laptop, server: Tracked, option: str, ask: str) -> str:
    """Open a connection with that option, run `ask` on the laptop, close it."""
    options = " ".join(laptop.options())
    target = f"user@{server.address}"
    control = "-S /tmp/control-forward"
    script = (
        f"ssh -f -N -M {control} -o ExitOnForwardFailure=yes {option} {options} {target} && "
        f"{{ {ask}; }}; code=$?; ssh {control} -O exit {target} 2>/dev/null; exit $code"
    )
    return laptop.sh(script).ok().out


def test_a_local_port_leads_to_one_inside(laptop: Laptop, busy: Tracked) -> None:
    assert forward(laptop, busy, "-L 7001:localhost:7000", run(ASK, "7001")) == "hello\n"


def test_a_socks_proxy_leads_anywhere_inside(laptop: Laptop, busy: Tracked) -> None:
    ask = "curl -sS --http0.9 --max-time 10 --noproxy '' --socks5-hostname 127.0.0.1:7002 http://localhost:7000/"
    assert forward(laptop, busy, "-D 7002", ask) == "hello"


def test_a_port_inside_leads_to_one_of_the_laptops_on_the_loopback_alone(laptop: Laptop, busy: Tracked) -> None:
    # Left over for the second run of this test, which then finds the port taken.
    laptop.sh(f"{run(GREET, '7003')} >/dev/null 2>&1 </dev/null & sleep 0.5").ok()
    options = " ".join(laptop.options())
    inside = f"{run(ASK, '7004')}; {LISTENS.format(address=LOOPBACK)}; {LISTENS.format(address=ANY)}; true"
    ask = f"ssh {options} user@{busy.address} {shlex.quote(inside)}"
    assert forward(laptop, busy, "-R 0.0.0.0:7004:localhost:7003", ask).split() == ["hello", "1", "0"]


def test_a_unix_socket_leads_to_one_inside(laptop: Laptop, busy: Tracked) -> None:
    assert forward(laptop, busy, "-L /tmp/l:/tmp/s", f"{run(ASK, '/tmp/l')}; rm /tmp/l") == "hello\n"


def test_the_agent_comes_along(laptop: Laptop, busy: Tracked) -> None:
    options = " ".join(laptop.options())
    login = f"ssh -A {options} user@{busy.address} ssh-add -L"
    script = f"eval $(ssh-agent) >/dev/null; ssh-add -q /keys/id; {login}; kill $SSH_AGENT_PID"
    assert laptop.sh(script).ok().out.split()[:2] == laptop.public.split()[:2]
    assert "SSH_AUTH_SOCK" not in laptop.ssh(busy, "env").ok().out


def test_twenty_sessions_on_one_connection(laptop: Laptop, busy: Tracked) -> None:
    options = " ".join(laptop.options())
    target = f"user@{busy.address}"
    sessions = f"for i in $(seq 20); do ssh -S /tmp/many {target} 'sleep 2; echo x' & done; wait"
    done = laptop.sh(
        f"ssh -f -N -M -S /tmp/many {options} {target}; {sessions}; ssh -S /tmp/many -O exit {target}"
    ).ok()
    assert done.out.split() == ["x"] * 20


def test_a_forwarded_port_ends_with_its_connection(laptop: Laptop, busy: Tracked) -> None:
    def probe() -> bool:
        return busy.exec("sh", "-c", LISTENS.format(address=LOOPBACK)).out == "0\n"

    until("a line in the log", probe, lambda: busy.exec("cat", "/proc/net/tcp").out)


def test_an_idle_connection_lives(laptop: Laptop, idle: Idle) -> None:
    """Longer than ClientAliveInterval, after which sshd asks whether the client is there."""
    time.sleep(max(0.0, IDLE_SECONDS - (time.monotonic() - idle.since)))
    for control, server in idle.connections.items():
        target = f"user@{server.address}"
        assert (
            laptop.sh(f"ssh -S {control} {target} echo alive && ssh -S {control} -O exit {target}").ok().out
            == "alive\n"
        )
        accepted = [line for line in server.log().splitlines() if line.startswith("Accepted")]
        assert len(accepted) == 1, "the same connection all the time"
