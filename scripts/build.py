"""Builds the image with the rows of docker-bake.hcl, and says what each step took."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scripts import base, names, process, ui
from scripts.engine import Engine, ensure_engine

GIGABYTE = 10**9
NEEDED_FOR_FIRST_BUILD = 25 * GIGABYTE
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
SHORTEST_STEP_TOLD = 2.0


def main() -> int:
    """`make build`: build the chosen variant, whether it exists or not."""
    engine = ensure_engine(need_build=True)
    targets = sys.argv[1:] or [base.choose_variant(engine)]
    build(engine, targets)
    ui.steps.summary()
    ui.say(f"Built: {' '.join(names.image_of(target) for target in targets)}")
    return 0


def ensure_images(engine: Engine, targets: Sequence[str]) -> None:
    """Build those of the targets whose image does not exist."""
    lacking = [target for target in targets if not engine.image_id(names.image_of(target))]
    if lacking:
        build(engine, lacking)


def build(engine: Engine, targets: Sequence[str]) -> None:
    """Build targets of docker-bake.hcl, with the bases that they start from."""
    check_disk(engine, targets)
    for name in bases_of(targets):
        base.ensure_base(engine, name)
    log = names.LOGS / f"build-{'+'.join(targets)}.log"
    progress = Progress()
    with ui.steps.step(f"build {' '.join(targets)}", f"docker buildx bake; all it says is in {log}"):
        done = process.stream(bake_command(engine, targets), log, progress.read, bake_environ())
        progress.clear()
    progress.summary()
    if not done.ok:
        raise explain(done.out, log, targets)


def bases_of(targets: Sequence[str]) -> list[str]:
    """Name the bases that must be made first; the default base comes from its registry."""
    bases = ["glibc231" if "glibc" in target else "embedded" for target in targets if "default" not in target]
    return list(dict.fromkeys(bases))


def bake_command(engine: Engine, targets: Sequence[str]) -> list[str]:
    """Write the bake command. The file is always named: a bare bake would merge the compose files."""
    options = ["--progress=plain"]
    bundle = names.ca_bundle()
    if bundle:
        options += ["--set", f"*.secrets=id=ca_bundle,src={bundle}"]
    for name in PROXIES:
        if os.environ.get(name):
            options += ["--set", f"*.args.{name}={os.environ[name]}"]
    return engine.command("buildx", "bake", "--file", str(names.ROOT / "docker-bake.hcl"), *options, *targets)


def bake_environ() -> dict[str, str]:
    """Fix the build's time, and keep the caller's variables out of those of docker-bake.hcl and buildx."""
    ours = {name: value for name, value in os.environ.items() if name != "IMAGE" and not name.startswith("BUILDX_")}
    return {**ours, "SOURCE_DATE_EPOCH": names.source_date_epoch(), "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


def check_disk(engine: Engine, targets: Sequence[str]) -> None:
    """Stop before a first build that would fill the disk."""
    root = Path(engine.ask("info", "--format", "{{.DockerRootDir}}").out.strip() or "/nowhere")
    if not root.is_dir() or any(engine.image_id(names.image_of(target)) for target in targets):
        return  # the engine keeps its data on another machine; or this is no first build
    free = shutil.disk_usage(root).free
    if free < NEEDED_FOR_FIRST_BUILD:
        raise ui.UserError(
            "there is not enough disk space to build the image",
            f"{free / GIGABYTE:.0f} GB are free below {root}; a first build needs "
            f"about {NEEDED_FOR_FIRST_BUILD / GIGABYTE:.0f} GB",
            "free some: docker system df; docker builder prune; docker image prune",
        )


class Progress:
    """Reads buildx's plain progress: a line a finished step, and on a terminal the step at work."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.took: list[tuple[float, str]] = []
        self.begun = time.monotonic()

    def read(self, line: str) -> None:
        """Take one line of `--progress=plain`."""
        if match := re.match(r"#(\d+) (\[.+\].*)", line):
            self.names.setdefault(match[1], match[2])
            self._at_work(match[2])
        elif match := re.match(r"#(\d+) exporting to (\S+)", line):
            self.names.setdefault(match[1], f"export to {match[2]}")
        elif match := re.match(r"#(\d+) DONE ([\d.]+)s", line):
            self._done(match[1], float(match[2]))

    def _done(self, number: str, seconds: float) -> None:
        name = self.names.get(number)
        if name and seconds >= SHORTEST_STEP_TOLD:
            self.clear()
            ui.say(f"   {seconds:6.1f} s  {name[:90]}")
            self.took.append((seconds, name))

    def _at_work(self, name: str) -> None:
        if ui.terminal():
            columns = shutil.get_terminal_size().columns
            text = f"   {time.monotonic() - self.begun:6.0f} s  {name}"
            print(f"\r\x1b[K{text[: columns - 1]}", end="", flush=True)

    def clear(self) -> None:
        """Wipe the line of the step at work."""
        if ui.terminal():
            print("\r\x1b[K", end="", flush=True)

    def summary(self) -> None:
        """Say when there was nothing to tell: everything came from the cache."""
        if not self.took:
            ui.say("   every step was in the cache, or short")


NO_SPACE = re.compile(r"no space left on device", re.IGNORECASE)
NO_NETWORK = re.compile(
    r"Could not resolve|Temporary failure (in name resolution|resolving)|Failed to fetch|dns error|"
    r"error sending request|Connection (refused|timed out)|Network is unreachable|"
    r"CERTIFICATE_VERIFY_FAILED|UnknownIssuer|self.signed certificate|failed to resolve source metadata",
    re.IGNORECASE,
)


def explain(said: str, log: Path, targets: Sequence[str]) -> ui.UserError:
    """Find the reason in what the build said last."""
    lines = [re.sub(r"^#\d+ (\d+\.\d+ )?", "", line) for line in said.splitlines() if line.strip()]
    what = f"the build of {' '.join(targets)} failed"
    if full := [line for line in lines if NO_SPACE.search(line)]:
        return ui.UserError(f"{what}: the disk is full", full[-1], "free some: docker system df; docker builder prune")
    if lost := [line for line in lines if NO_NETWORK.search(line)]:
        return ui.UserError(
            f"{what}: a package index or another server could not be reached",
            "\n".join(lost[-3:]),
            "check the network and HTTP_PROXY, HTTPS_PROXY; behind a proxy with its own CA set\n"
            "SSL_CERT_FILE to a bundle that has it. Then run the same command again: finished steps are kept",
        )
    return ui.UserError(what, "\n".join(lines[-8:]), f"{log} has all it said")


if __name__ == "__main__":
    ui.entry("build", main)
