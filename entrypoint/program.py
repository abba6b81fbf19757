"""Becoming the user's command: found as a shell would find it, on the user's PATH, with the user's rights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from entrypoint.command import known_words
from entrypoint.errors import StartError
from entrypoint.privileges import reset_signals
from entrypoint.settings import closest

NOT_FOUND = 127
NOT_EXECUTABLE = 126


def find_program(name: str, path: bytes) -> str:
    """The file to run, or the error that a shell would give: 127 not found, 126 not executable."""
    if "/" in name:
        candidates = [name]
    else:
        # An empty entry of PATH is the current directory, as it is for every shell.
        candidates = [os.path.join(os.fsdecode(entry) or ".", name) for entry in path.split(b":")] if name else []
    there = [candidate for candidate in candidates if os.path.isfile(candidate)]
    for candidate in there:
        if os.access(candidate, os.X_OK):
            return candidate
    if there or any(os.path.isdir(candidate) for candidate in candidates if "/" in name):
        raise _not_executable(name, there)
    raise _not_found(name, path)


def become_program(argv: Sequence[str], environ: Mapping[bytes, bytes]) -> NoReturn:
    """Replace this process by the program. It has become the user already."""
    file = find_program(argv[0], environ.get(b"PATH", b""))
    # Python ignores SIGPIPE, and a program would inherit that: `yes | head` would complain.
    reset_signals()
    try:
        os.execve(file, list(argv), dict(environ))
    except OSError as error:
        raise StartError(
            f"{argv[0]} cannot be run",
            f"{file}: {(error.strerror or str(error)).lower()}",
            "a script's first line must name a program that exists (#!/bin/bash); a binary must be for amd64",
            NOT_EXECUTABLE,
        ) from error


def _not_executable(name: str, there: Sequence[str]) -> StartError:
    if not there:
        return StartError(f"{name} is a directory", name, "name a program: docker run IMAGE bash", NOT_EXECUTABLE)
    return StartError(
        f"{name} is not executable",
        f"{there[0]} has no execute permission for the user, or lies on a noexec mount",
        f"chmod +x {there[0]}, or name its interpreter: docker run IMAGE python {there[0]}",
        NOT_EXECUTABLE,
    )


def _not_found(name: str, path: bytes) -> StartError:
    return StartError(
        f"there is no command {name!r} in the image",
        f"{name} is no file"
        if "/" in name
        else f"{name!r} is no command of the image and not on PATH={os.fsdecode(path)}",
        _advice(name),
        NOT_FOUND,
    )


def _advice(name: str) -> str:
    meant = closest(name, known_words())
    if name.startswith("-"):
        return "options of docker run go before the image's name; docker run IMAGE --help shows the commands"
    if meant:
        return f"docker run IMAGE {meant} ...   (did you mean {meant}?)"
    return "docker run IMAGE --help shows the commands; programs need their full path or a place on PATH"
