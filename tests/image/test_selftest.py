"""selftest in the image: who runs it, and what a missing GPU is. Its checks are a suite of their own (in-image)."""

from __future__ import annotations

import pytest

from tests.support.containers import Containers


def test_a_missing_gpu_is_a_failure_when_one_is_required(containers: Containers, image: str) -> None:
    words = ("selftest", "imports")
    done = containers.run(image, *words, options=["--env", "REQUIRE_GPU=1"], budget="a program that loads torch")
    if "torch sees the GPU: " in done.out:
        pytest.skip("this engine gives a GPU to every container")
    assert done.code == 1 and "REQUIRE_GPU=1, and there is no GPU" in done.out, done


def test_by_docker_exec_it_runs_as_the_user(containers: Containers, image: str) -> None:
    container = containers.start(image, "sleep", "600")
    container.wait_for_process("sleep")
    trap = "import os; open(f'/tmp/ran-as-{os.getuid()}', 'w').close()\n"
    plant = "cat > /opt/conda/envs/pytorch/lib/python3.13/site-packages/trap.pth"
    container.exec("sh", "-c", plant, user="user", stdin=trap.encode()).ok()
    container.exec("selftest", "image", user="0", budget="a program that loads torch").ok()
    assert container.exec("sh", "-c", "ls /tmp | grep ran-as").ok().out == "ran-as-1000\n"
