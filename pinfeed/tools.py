"""The subcommands beside `train`: what they can be told on the command line, and what runs them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, Optional

from pinfeed.errors import PinfeedError
from pinfeed.stop import Stop

_PACK = """\
examples:
  pinfeed pack --data ~/imagenet --out ~/imagenet-256     train/ and val/ are packed as two sets
  pinfeed pack --data ~/flowers --out packed --size 224   a subfolder of images for each class
  pinfeed pack --data fashion-mnist --out packed/fashion
  pinfeed pack --data ~/flowers --out packed --resume     go on after a stop or a kill
"""
_MAKE = """\
examples:
  pinfeed make-data --out data/jpeg                              1,000 images of 500x375, about 40 kB each
  pinfeed make-data --bytes 110k --count 20000 --out data/large  as large as ImageNet's
"""
_PROBE = """\
examples:
  pinfeed probe
  pinfeed probe --json probe.json --plot probe.png
  pinfeed probe --allow-cpu           without a GPU: copies within the host's memory, marked so
"""


def add_parsers(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `pack`, `make-data` and `probe`."""
    _add_pack(_command(commands, "pack", "pack images into plain NumPy files, which are read without decoding", _PACK))
    _add_make_data(_command(commands, "make-data", "make photo-like JPEGs that anyone can make again", _MAKE))
    _add_probe(_command(commands, "probe", "measure how fast data gets from this host to its GPU", _PROBE))


def runner(options: argparse.Namespace) -> Optional[Callable[[Stop], None]]:
    """What runs the command chosen; None when it is not one of these. Mistakes in its flags are raised now."""
    chosen = {name: value for name, value in vars(options).items() if value is not None}
    command = chosen.pop("command")
    make = {"pack": _pack, "make-data": _make_data, "probe": _probe}.get(command)
    return make(chosen) if make else None


def _pack(chosen: dict[str, Any]) -> Callable[[Stop], None]:
    from pinfeed import pack, talk

    config = pack.PackConfig(**_with_workers(chosen, "pack"))

    def run(stop: Stop) -> None:
        pack.pack(config, os.environ, talk.to_terminal(), stop)

    return run


def _make_data(chosen: dict[str, Any]) -> Callable[[Stop], None]:
    from pinfeed import make_data, talk

    config = make_data.MakeConfig(**_with_workers(chosen, "make-data"))

    def run(stop: Stop) -> None:
        make_data.make_data(config, talk.to_terminal(), stop)

    return run


def _probe(chosen: dict[str, Any]) -> Callable[[Stop], None]:
    def run(stop: Stop) -> None:
        from pinfeed import probe, talk

        probe.probe(probe.ProbeConfig(**chosen), talk.to_terminal(), stop)

    return run


def _with_workers(chosen: dict[str, Any], command: str) -> dict[str, Any]:
    asked = chosen.pop("workers", "auto")
    if asked == "auto":
        return chosen
    try:
        return {**chosen, "workers": int(asked)}
    except ValueError:
        raise PinfeedError(
            "--workers must be `auto` or a whole number", f"--workers {asked}", f"pinfeed {command} --workers auto ..."
        ) from None


def _command(commands: argparse._SubParsersAction[Any], name: str, what: str, examples: str) -> Any:
    return commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_pack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, metavar="NAME|FOLDER", help="fashion-mnist, or a folder of images")
    parser.add_argument("--out", required=True, metavar="DIR", help="where images.npy, labels.npy, meta.json go")
    parser.add_argument(
        "--size", type=int, metavar="N", help="side of the packed squares: short side, then the middle (default 256)"
    )
    _add_workers(parser)
    parser.add_argument("--resume", action="store_true", default=None, help="go on with a packing that was stopped")
    parser.add_argument("--json", metavar="FILE", help="write the summary there, for programs")
    parser.add_argument(
        "--no-checksum",
        dest="checksum",
        action="store_false",
        default=None,
        help="another set in Fashion-MNIST's format, found by $PINFEED_DATA",
    )


def _add_make_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder, with a subfolder for each class")
    parser.add_argument("--seed", type=int, metavar="N", help="decides every pixel (default 0)")
    parser.add_argument("--size", metavar="WxH", help="pixels (default 500x375)")
    parser.add_argument("--bytes", metavar="N", help="about how large a file is: 40k (default), 110k ...")
    parser.add_argument("--count", type=int, metavar="N", help="images (default 1000)")
    parser.add_argument("--classes", type=int, metavar="K", help="class folders (default 10)")
    _add_workers(parser)


def _add_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write all numbers there, for programs")
    parser.add_argument("--plot", metavar="FILE", help="draw bandwidth over size there, as a PNG")
    parser.add_argument(
        "--pin-limit",
        metavar="SIZE",
        help="try to pin at most this much (default 4g, and never more than a quarter of what is left)",
    )
    parser.add_argument(
        "--allow-cpu", action="store_true", default=None, help="without a GPU measure copies within the host's memory"
    )


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", metavar="auto|N", help="processes; auto (default): as many as CPUs may be used")
