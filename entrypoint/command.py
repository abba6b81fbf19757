"""What the arguments of `docker run IMAGE ...` ask for. Pure: it decides, and others act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from entrypoint.settings import CHECKS, MODES, PINFEED, Settings, used_by

BIN = "/opt/pytorch-cuda/bin"
_WORDS_FOR_MODES = ("jupyter", "ssh", "all", "code")
_JUPYTER_OPTIONS = ("--ServerApp.", "--LabApp.", "--IdentityProvider.")


@dataclass(frozen=True)
class Plan:
    """`kind`: "services" (the mode in `word`), "exec" (run `argv`), "help" or "version".

    `word` chooses the settings that are checked; `ours` is true for the image's own programs.
    """

    kind: str
    word: str
    argv: tuple[str, ...] = ()
    ours: bool = False

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the settings that this plan uses."""
        return used_by(self.word)


def plan_command(argv: Sequence[str], environ: Mapping[bytes, bytes]) -> Plan:
    """Decide by the first argument; without one, by MODE."""
    if not argv:
        return Plan("services", Settings.read(environ, ("MODE",))["MODE"])
    word, rest = argv[0], tuple(argv[1:])
    if word in ("--help", "--version"):
        return Plan(word[2:], word[2:])
    if word in _WORDS_FOR_MODES and not rest:
        return Plan("services", word)
    if word == "jupyter" and rest[0].startswith(_JUPYTER_OPTIONS):
        return Plan("services", word, rest)
    if word in PINFEED:
        return Plan("exec", word, (f"{BIN}/pinfeed", *argv), ours=True)
    if word in CHECKS:
        return Plan("exec", word, (f"{BIN}/{word}", *rest), ours=True)
    return Plan("exec", "exec", tuple(argv))


def known_words() -> tuple[str, ...]:
    """The first arguments that mean something to the image."""
    return tuple(dict.fromkeys(_WORDS_FOR_MODES + MODES[1:] + PINFEED + CHECKS))
