"""selftest in the image: all that can be done here passes, and what cannot is counted with its reason."""

from __future__ import annotations

import json

import pytest

from tests.support.containers import Containers

REASONS = {"no GPU", "needs a second GPU"}


@pytest.mark.slow
def test_all_that_can_be_done_here_passes(containers: Containers, image: str) -> None:
    done = containers.run(image, "selftest", "--json", budget="the whole training")
    told = json.loads(done.out)
    failed = [check for check in told["checks"] if check["status"] == "failed"]
    assert not failed and done.code == 0, failed
    assert {check["text"] for check in told["checks"] if check["status"] == "skipped"} <= REASONS
    assert told["summary"]["passed"] >= 20
    assert told["machine"]["torch"] == "2.7.1+cu126"


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
