"""The one kind of error that a user sees, in three parts."""

from __future__ import annotations

BAD_SETTING = 64


class StartError(Exception):
    """A mistake that stops the start: what failed, what was seen, and what to do about it."""

    def __init__(self, what: str, seen: str, do: str, code: int = BAD_SETTING) -> None:
        super().__init__(what, seen, do, code)
        self.what = what
        self.seen = seen
        self.do = do
        self.code = code

    def __str__(self) -> str:
        return f"start: {self.what}\n  seen: {self.seen}\n  do:   {self.do}"
