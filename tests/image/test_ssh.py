"""A short look at the second way in; tests/ssh looks longer (`make test-slow`)."""

from __future__ import annotations

from tests.support.containers import Containers
from tests.support.lab import Lab
from tests.support.laptop import Laptop, Servers

PYTHON = "import sys, torch; print(sys.executable, torch.__version__)"


def test_ssh_lets_the_key_in_beside_jupyterlab_and_shows_the_same_python(containers: Containers, image: str) -> None:
    laptop = Laptop(containers, image)
    options = ["--publish", "127.0.0.1::8888", "--env", "NOTE=two  words"]
    server = Servers(containers, laptop).start(image, *options, mode="")
    done = laptop.ssh(server, f"echo \"$NOTE\"; id -un; python -c '{PYTHON}'", budget="a program that loads torch").ok()
    assert done.out == "two  words\nuser\n/opt/conda/envs/pytorch/bin/python 2.7.1+cu126\n"
    assert done.err == ""
    assert Lab.of(server).lets_in()
    laptop.make_key("stranger")
    assert "Permission denied (publickey)" in laptop.ssh(server, "true", key="stranger").ended(255).err
