"""Child processes with a time limit that holds."""

from __future__ import annotations

import sys
import time

from doctor.runner import NOT_FOUND, run


def test_what_a_program_says_is_kept_apart() -> None:
    ran = run([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], 20)
    assert (ran.code, ran.out, ran.err, ran.timed_out, ran.ok) == (3, "out\n", "err\n", False, False)
    assert ran.last_line == "err"


def test_a_missing_program_is_no_exception() -> None:
    ran = run(["/nowhere/at/all"], 5)
    assert (ran.code, ran.ok) == (NOT_FOUND, False)
    assert "/nowhere/at/all" in ran.err


def test_a_hanging_program_is_ended_with_all_its_children() -> None:
    begun = time.monotonic()
    ran = run(["/bin/sh", "-c", "trap '' TERM; echo begun; sleep 60 & wait"], 0.5)
    assert time.monotonic() - begun < 5
    assert ran.timed_out and not ran.ok and ran.out == "begun\n"


def test_a_program_that_leaves_a_child_behind_does_not_hold_us_up() -> None:
    """With pipes we would wait for the child, which holds their other end."""
    begun = time.monotonic()
    assert run(["/bin/sh", "-c", "sleep 20 & echo done"], 5).out == "done\n"
    assert time.monotonic() - begun < 5


def test_bytes_that_are_no_text_are_no_error() -> None:
    assert run(["/bin/sh", "-c", r"printf '\377x'"], 5).out == "�x"


def test_the_environment_is_the_given_one() -> None:
    assert run(["/usr/bin/env"], 5, {"ONLY": "this"}).out == "ONLY=this\n"
