"""A pass, a failure of each kind, and each kind of skip."""

from __future__ import annotations

from selftest.checks import NO_GPU, NOT_IN_THE_IMAGE, CannotRunError, check, require


@check("passes")
def passes() -> str:
    print("noise on stdout")
    return "three words here"


@check("is wrong")
def is_wrong() -> None:
    require(False, "seen: 2\nwanted: 3")


@check("breaks")
def breaks() -> None:
    raise ZeroDivisionError("oops")


@check("has no GPU")
def has_no_gpu() -> None:
    raise CannotRunError(NO_GPU)


@check("is not in the image")
def is_elsewhere() -> None:
    raise CannotRunError(NOT_IN_THE_IMAGE)


@check("needs more")
def needs_more() -> None:
    raise CannotRunError("needs a second GPU")
