"""torch.compile works: a C++ compiler, a name for the uid, and places to cache in (pytorch/pytorch#116696, B047)."""

from __future__ import annotations

import pytest

from tests.support.containers import Containers

CODE = """
import torch
double = torch.compile(lambda x: x * 2 + 1)
print(double(torch.ones(3)).tolist())
"""


@pytest.mark.parametrize(
    "options",
    [
        # The hardest of the three is asked each time; a compilation takes 20 s.
        pytest.param(("--user", "12345:12345"), id="unknown-uid"),
        pytest.param((), id="user", marks=pytest.mark.slow),
        pytest.param(
            ("--read-only", "--tmpfs", "/run", "--tmpfs", "/tmp:exec"), id="read-only-exec", marks=pytest.mark.slow
        ),
    ],
)
def test_torch_compile_works(containers: Containers, image: str, options: tuple[str, ...]) -> None:
    done = containers.run(image, "python", "-c", CODE, options=options, budget="the compiler").ok()
    assert done.out == "[3.0, 3.0, 3.0]\n"
    assert "noexec" not in done.err


def test_a_noexec_home_is_noticed_before_the_compiler_fails_in_it(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "true", options=["--read-only", "--tmpfs", "/run", "--tmpfs", "/tmp"]).ok()
    lines = [line for line in done.err.splitlines() if "noexec" in line]
    assert len(lines) == 1
    assert "--tmpfs /tmp:exec" in lines[0]
