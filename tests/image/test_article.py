"""The article's command, word for word, on a terminal: as root and as an ordinary user, with and without ./code."""

from __future__ import annotations

import os
import re
import socket
import time

import pytest

from tests.support.caller import ORDINARY, as_ordinary_user, environment
from tests.support.containers import LABEL, Containers, call
from tests.support.folders import Folders, owner
from tests.support.lab import Lab
from tests.support.terminal import CTRL_C, Terminal

# Left out: `--gpus all`, which stands there only where there is a GPU.
COMMAND = "docker run -it -p 8888:8888 -p 2222:22 -v ./code:/workspace/code"
# Far from the ten seconds after which Docker would kill it; the two seconds of an idle one are timed in test_stop.py.
STOP_SECONDS = 5.0


def refuse_a_taken_port() -> None:
    for port in (8888, 2222):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                pytest.fail(f"port {port} of this machine is taken, and the article's command needs it", pytrace=False)


def container_at_the_port() -> str:
    """The command gives no name; it is the one that publishes the port."""
    return call("docker", "ps", "--quiet", "--filter", "publish=8888").ok().out.strip()


@pytest.mark.parametrize("caller", ["root", "ordinary"])
@pytest.mark.parametrize("code_is", ["there", "missing"])
def test_the_articles_command_works_word_for_word(
    containers: Containers, image: str, folders: Folders, caller: str, code_is: str
) -> None:
    if caller == "root" and os.geteuid() != 0:
        pytest.skip("this run is an ordinary user's")
    refuse_a_taken_port()
    whose = (0, 0) if caller == "root" else ORDINARY
    home = folders.new(whose, name="home")
    code = home / "code"
    if code_is == "there":
        code.mkdir()
        folders.give(code, whose)
    prefix = [] if caller == "root" else as_ordinary_user()
    command = [*prefix, *COMMAND.split(), image]
    with Terminal(command, cwd=str(home), environ=environment(home)) as terminal:
        url = terminal.wait_for(r"JupyterLab: (http://127\.0\.0\.1:8888/)lab\?token=([0-9a-f]{48})")
        container = containers.adopt(container_at_the_port())
        lab = Lab(url[1], url[2], container)
        lab.wait()
        assert lab.lets_in()
        lab.write("code/first.py", "print('hello')")
        assert lab.run("import torch; print(torch.__version__)").startswith("2.7.1")
        begun = time.monotonic()
        terminal.press(CTRL_C)
        exit_code = terminal.wait()
        seconds = time.monotonic() - begun
    # An empty folder of root's is given to 1000, since nothing runs as root inside.
    expected = ORDINARY if caller == "ordinary" and code_is == "there" else (1000, 1000)
    assert owner(code / "first.py") == owner(code) == expected
    assert exit_code in (0, 130, 143), terminal.screen
    assert seconds < STOP_SECONDS, terminal.screen
    assert not re.search(r"Traceback|Shutdown this|\[E ", terminal.screen)
    assert LABEL not in container.inspect()["Config"]["Labels"], "started by the user's command, not by ours"
