"""Reads a Dockerfile: comments out, continued lines joined, instructions by stage."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field

from scripts import names

TEXT = (names.ROOT / "Dockerfile").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Instruction:
    """One instruction; its words in one line, as the builder sees them."""

    word: str
    rest: str

    def options(self) -> dict[str, list[str]]:
        """`--name=value` before anything else."""
        found: dict[str, list[str]] = {}
        for part in self.rest.split():
            if not part.startswith("--"):
                break
            name, _, value = part[2:].partition("=")
            found.setdefault(name, []).append(value)
        return found

    def arguments(self) -> list[str]:
        """What follows the options, for ADD and COPY."""
        return [part for part in self.rest.split() if not part.startswith("--")]

    def command(self) -> str:
        """The shell's part of a RUN."""
        return re.sub(r"^(--\S+\s+)+", "", self.rest)

    def exec_form(self) -> list[str]:
        """The list of ENTRYPOINT, CMD, SHELL, and of HEALTHCHECK's CMD."""
        words: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return words

    def pairs(self) -> dict[str, str]:
        """`NAME=value ...` of ENV and LABEL."""
        return dict(part.split("=", 1) for part in shlex.split(self.rest))


@dataclass
class Stage:
    """One stage: its name, what it begins with, its instructions."""

    name: str
    parent: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[Instruction]:
        """Its instructions of one kind."""
        return [instruction for instruction in self.instructions if instruction.word == word]

    def run_with(self, text: str) -> str:
        """The command of its one RUN that contains the text."""
        (found,) = [run.command() for run in self.all("RUN") if text in run.command()]
        return found


def instructions(text: str) -> list[Instruction]:
    """Join continued lines; a comment inside of one is left out, as the builder does."""
    joined = re.sub(r"\\\n", "", re.sub(r"(?m)^[ \t]*#.*\n", "", text))
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    return [Instruction(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def stages(text: str = TEXT) -> dict[str, Stage]:
    """The stages in their order."""
    found: dict[str, Stage] = {}
    for instruction in instructions(text):
        if instruction.word == "FROM":
            parent, name = re.fullmatch(r"(\S+) AS (\S+)", instruction.rest).groups()  # type: ignore[union-attr]
            found[name] = stage = Stage(name, parent)
        elif found:
            stage.instructions.append(instruction)
    return found


def defaults(text: str = TEXT) -> dict[str, str]:
    """The default of every ARG that has one; that of a stage may refer to one above."""
    found: dict[str, str] = {}
    for instruction in instructions(text):
        name, given, value = instruction.rest.partition("=")
        if instruction.word == "ARG" and given:
            found[name] = expand(value, found)
    return found


def expand(text: str, values: dict[str, str]) -> str:
    """Put the arguments' values into `${NAME}`; what is unknown stays."""
    return re.sub(r"\$\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)


def chain(name: str, found: dict[str, Stage], values: dict[str, str]) -> list[Stage]:
    """A stage and those it stands on, the lowest first."""
    stage = found[name]
    parent = expand(stage.parent, values)
    return [*(chain(parent, found, values) if parent in found else []), stage]
