"""The command line: arguments in, exit code out. torch is only loaded once it is needed."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

from pinfeed import __version__, tools
from pinfeed.config import AMP_MODES, AUGMENTS, DEVICES, FEEDS, MODELS, TrainConfig, pin_memory_from
from pinfeed.errors import PinfeedError, Stopped
from pinfeed.stop import Stop

_INTERRUPTED = 130

_EXAMPLES = """\
examples:
  pinfeed train                                        the bundled Fashion-MNIST, about a minute on two cores
  pinfeed train --epochs 10 --batch-size 256 --out runs/long
  pinfeed train --data ~/fashion-mnist --out runs/mine   the four IDX files, plain or .gz, in a folder
  pinfeed train --data packed/flowers --model resnet50 --compile --batch-size 256
  torchrun --standalone --nproc-per-node 4 -m pinfeed train --data packed/flowers --model resnet50
  pinfeed train --resume runs/long                     go on with a run that was stopped
  pinfeed train --dry-run                              check everything, do a few steps, write nothing

A run leaves metrics.json (the end result), metrics.jsonl (a line an epoch), training.png and checkpoint.pt
in its folder. Ctrl-C and SIGTERM save a checkpoint, and exit with 130 and 143; only a finished run exits 0.
"""


class _Parser(argparse.ArgumentParser):
    """argparse, but a mistake is told in three parts like every other one."""

    def error(self, message: str) -> NoReturn:
        raise PinfeedError(message, shlex.join(["pinfeed", *self.seen]), f"{self.prog} --help")

    seen: Sequence[str] = ()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run pinfeed with these arguments (those of the process by default) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        _run(arguments)
    except PinfeedError as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except Stopped as stopped:
        print(f"pinfeed: {stopped}", file=sys.stderr)
        return stopped.code
    except KeyboardInterrupt:
        print("pinfeed: stopped at once; nothing was saved after the last checkpoint", file=sys.stderr)
        return _INTERRUPTED
    except SystemExit as end:  # argparse, after --help and --version
        return int(end.code or 0)
    return 0


def _run(arguments: list[str]) -> None:
    _Parser.seen = arguments
    options = _parser().parse_args(arguments)
    tool = tools.runner(options)
    if tool:
        with Stop() as stop:
            tool(stop)
        return
    given = frozenset(name for name, value in vars(options).items() if value is not None)
    config = _config(options)
    # From here on, so that a signal is answered in the same way while torch is still loading.
    with Stop() as stop:
        # Read when torch loads. Threads that spin while they wait for each other come to a stop beside a busy
        # neighbour: 790 ms a step on two cores, 82 ms so (tests/pinfeed/test_cli.py).
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        from pinfeed import run, talk

        command = shlex.join(["pinfeed", *arguments])
        run.train(config, given, command, os.environ, talk.to_terminal(), stop)


def _config(options: argparse.Namespace) -> TrainConfig:
    chosen = {name: value for name, value in vars(options).items() if value is not None and name != "command"}
    chosen.setdefault("pin_memory", pin_memory_from(os.environ))
    workers = chosen.pop("workers", "auto")
    if workers != "auto":
        chosen["workers"] = _whole("--workers", workers)
    return TrainConfig(**chosen)


def _whole(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PinfeedError(
            f"{flag} must be `auto` or a whole number", f"{flag} {text}", f"pinfeed train {flag} auto ..."
        ) from None


def _parser() -> _Parser:
    parser = _Parser(
        prog="pinfeed",
        description="Train on data that reaches the GPU in time.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pinfeed {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    train = commands.add_parser(
        "train",
        help="train a network on Fashion-MNIST, packed data, an image folder, or made-up images",
        description="Train a network: on the GPU where there is one, on all that torchrun gives, else on the CPU.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_learning(train.add_argument_group("what is learned"))
    _add_machine(train.add_argument_group("on what"))
    _add_run(train.add_argument_group("the run"))
    tools.add_parsers(commands)
    return parser


# No default is given to argparse: None tells a setting that was not given from one that was.


def _add_learning(group: argparse._ArgumentGroup) -> None:
    default = TrainConfig
    group.add_argument(
        "--data",
        metavar="NAME|PATH",
        help="fashion-mnist (default; in $PINFEED_DATA, else the image's), synthetic, or a folder: packed by"
        " `pinfeed pack`, of images by class, or with Fashion-MNIST's files",
    )
    group.add_argument("--model", choices=MODELS, help="auto (default): small-cnn, from 64 pixels on resnet18")
    group.add_argument(
        "--augment",
        choices=AUGMENTS,
        help="none, flip, zoom (boxes of 64 to 100 %% of the image), crop (of 8 to 100 %%); auto (default): flip,"
        " from 64 pixels on crop",
    )
    group.add_argument("--image-size", type=int, metavar="N", help="side of the images that the network sees")
    group.add_argument("--epochs", type=int, metavar="N", help=f"times through the data (default {default.epochs})")
    group.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help=f"images in a step, of all GPUs together (default {default.batch_size})",
    )
    group.add_argument(
        "--lr",
        type=float,
        metavar="X",
        help=f"the highest learning rate (default {default.lr}); up, then down to 0",
    )
    group.add_argument(
        "--seed", type=int, metavar="N", help=f"of all random choices, the split too (default {default.seed})"
    )
    group.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="train on N images only, test on N/10: for a quick try, no result",
    )
    group.add_argument(
        "--no-checksum",
        dest="checksum",
        action="store_false",
        default=None,
        help="the files are another set in the same format (MNIST, KMNIST): skip Fashion-MNIST's checksums",
    )


def _add_machine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", choices=DEVICES, help="auto (default) takes the GPU when there is one")
    group.add_argument(
        "--amp",
        choices=AMP_MODES,
        help="mixed precision on the GPU: auto (default) is bf16, fp16 before Ampere",
    )
    group.add_argument(
        "--channels-last",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="lay out images channels last, which is faster on a GPU with AMP (default on)",
    )
    group.add_argument(
        "--compile", action="store_true", default=None, help="torch.compile the step: slow to start, then faster"
    )
    group.add_argument(
        "--feed",
        choices=FEEDS,
        help="how data reach the device: ring (packed data), prefetch or loader (a DataLoader); auto (default):"
        " ring, for image folders prefetch. The result is the same",
    )
    group.add_argument(
        "--no-pin-memory",
        dest="pin_memory",
        action="store_false",
        default=None,
        help="copy to the GPU from ordinary memory, which is slower (also: PIN_MEMORY=0)",
    )
    group.add_argument(
        "--workers",
        metavar="auto|N",
        help="processor threads, and for a DataLoader processes; auto (default): as many as affinity, CPU quota"
        " and, for processes, /dev/shm and memory allow",
    )


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--out",
        metavar="DIR",
        help="folder of the run (default runs/<data>-<date>-<time>, in a container below /workspace/code)",
    )
    group.add_argument(
        "--resume",
        metavar="PATH",
        help="go on from this checkpoint.pt, or from the one in this folder of a run",
    )
    group.add_argument(
        "--save-every", type=int, metavar="N", help="save every N steps too (default: at the end of each epoch)"
    )
    group.add_argument(
        "--dry-run", action="store_true", default=None, help="check everything, do a few steps, write nothing"
    )
