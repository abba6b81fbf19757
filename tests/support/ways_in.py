"""Every way into a container, and the environment that a program finds there, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tests.support.containers import Tracked
from tests.support.lab import Lab
from tests.support.laptop import Laptop
from tests.support.wait import until

Environment = Mapping[bytes, bytes]

# Values that something on the way could eat. A newline at the end is what $(...) would lose.
AWKWARD = {
    "PLAIN": "plain",
    "BLANKS": "  two  words ",
    "QUOTES": 'it\'s "so"',
    "SHELL_SIGNS": "$HOME `id` $(id) \\n \\ ! * ? ~ & ; | < > {a,b}",
    "HASH": "a # b",
    "PERCENT": "%h %u %% %",
    "NEWLINES": "one\ntwo\n",
    "CARRIAGE": "a\r\nb",
    "TAB": "a\tb",
    "EQUALS": "a=b=c",
    "UNICODE": "中文 é",
    "EMPTY": "",
    "LONG": "0123456789 " * 200,
    "lower_case": "1",
    "LD_LIBRARY_PATH": "/nowhere/lib",
    "TMPDIR": "/tmp",
    "TZ": "Asia/Shanghai",
    "HF_TOKEN": "hf_a-key-that-the-user-wants-in",
    "https_proxy": "http://proxy.example:3128",
}
# A session's own: they differ, and should.
OWN = frozenset(
    b"HOME USER LOGNAME SHELL HOSTNAME SHLVL PWD OLDPWD _ TERM LINES COLUMNS MAIL "
    b"SSH_CLIENT SSH_CONNECTION SSH_TTY".split()
)
MORE = {
    "sudo": re.compile(rb"SUDO_\w+"),
    "tmux": re.compile(rb"TMUX\w*|TERM_PROGRAM\w*|COLORTERM"),
    "kernel": re.compile(rb"JPY_\w+|JUPYTER_CONFIG_PATH|PAGER|GIT_PAGER|CLICOLOR\w*|FORCE_COLOR|MPLBACKEND|PYDEVD\w+"),
    "terminal": re.compile(rb"JPY_\w+|JUPYTER_\w+|COLORTERM|PYXTERM_DIMENSIONS"),
}
_PROGRAM = "{{ env -0; printf 'python=%s\\0' \"$(command -v python)\"; }} >/tmp/seen-{way}; : >/tmp/done-{way}"


def options(values: Mapping[str, str]) -> list[str]:
    """The options of `docker run` that set them."""
    return [part for name, value in values.items() for part in ("--env", f"{name}={value}")]


def look(container: Tracked, laptop: Laptop) -> dict[str, Environment]:
    """What a program sees by each way that needs no JupyterLab."""
    script = {
        way: _PROGRAM.format(way=way) for way in ("exec", "command", "tty", "login", "script", "plain", "sudo", "tmux")
    }
    container.exec("bash", "-c", script["exec"], user="user").ok()
    laptop.ssh(container, script["command"]).ok()
    laptop.ssh(container, script["tty"], options=["-tt"]).ok()
    laptop.ssh(container, options=["-tt"], stdin=f"{script['login']}; exit\n".encode()).ok()
    laptop.ssh(container, "bash -s", options=["-T"], stdin=script["script"].encode()).ok()  # VS Code's
    laptop.ssh(container, options=["-T"], stdin=script["plain"].encode()).ok()
    laptop.ssh(container, "sudo bash -s", stdin=script["sudo"].encode()).ok()
    laptop.ssh(container, 'tmux new-session -d "$(cat)"', stdin=script["tmux"].encode()).ok()
    return {way: seen(container, way) for way in script}


def look_in_jupyter(container: Tracked, lab: Lab) -> dict[str, Environment]:
    """What a kernel and a terminal see."""
    lab.run(f"import subprocess; subprocess.run(['bash', '-c', {_PROGRAM.format(way='kernel')!r}], check=True)")
    lab.type_in_terminal(_PROGRAM.format(way="terminal") + "\r")
    return {way: seen(container, way) for way in ("kernel", "terminal")}


def seen(container: Tracked, way: str) -> Environment:
    """Read what that way's program wrote down."""

    def probe() -> bool:
        return container.exec("test", "-e", f"/tmp/done-{way}").code == 0

    until("a line in the log", probe, lambda: f"{way}: {container.exec('ls', '/tmp').out}\n{container.log()}")
    data = container.exec("cat", f"/tmp/seen-{way}").ok().raw_out
    return dict(entry.partition(b"=")[::2] for entry in data.split(b"\0") if entry)


def differences(way: str, found: Environment, wanted: Environment) -> str:
    """The variables that are not as in `docker exec`; nothing when all are."""
    more = MORE.get(way)
    names = {name for name in {*found, *wanted} - OWN if not (more and more.fullmatch(name))}
    odd = {
        name.decode(): [str(wanted.get(name)), str(found.get(name))]
        for name in names
        if found.get(name) != wanted.get(name)
    }
    return json.dumps(odd, indent=2, sort_keys=True) if odd else ""
