"""selftest: shows that PyTorch, CUDA, pinned memory, training with several processes and torch.compile work here.

What needs a GPU is skipped without one, and counted; REQUIRE_GPU=1 makes that a failure. Exit status: 0, or 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from selftest import machine, results
from selftest.runner import run_topics
from selftest.topic import TOPICS


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the topics, tell what came of them, and return the exit status."""
    options = _parser().parse_args(arguments)
    facts = machine.describe()
    quiet = options.json == "-"
    say = _silence if quiet else _say
    say(", ".join(f"{name} {value}" for name, value in facts.items()))
    found = []
    for result in run_topics(options.topic or TOPICS):
        found.append(result)
        say(results.line(result))
    say(results.summary(found))
    if quiet:
        _say(results.as_json(found, facts))
    elif options.json:
        Path(options.json).write_text(results.as_json(found, facts) + "\n", encoding="utf-8")
    if options.junit:
        Path(options.junit).write_text(results.as_junit(found) + "\n", encoding="utf-8")
    return int(any(result.status == results.FAILED for result in found))


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser("selftest", description=summary, epilog=rest)
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="JSON on stdout, or into a file")
    parser.add_argument("--junit", metavar="FILE", help="JUnit's XML, for a CI")
    parser.add_argument("topic", nargs="*", type=_topic, metavar="TOPIC", help=f"run only these: {' '.join(TOPICS)}")
    return parser


def _topic(word: str) -> str:
    if word not in TOPICS:
        raise argparse.ArgumentTypeError(f"there is no topic {word!r}; there are: {' '.join(TOPICS)}")
    return word


def _say(text: str) -> None:
    print(text, flush=True)


def _silence(text: str) -> None:
    """Only the JSON goes to stdout."""


if __name__ == "__main__":
    sys.exit(main())
