"""`make doctor`: what is wrong on this machine, also when no container can start; then the container's own doctor.

Exit status: 0, or 1 when something does not work. `--json` as doctor's own.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from doctor import report, runner
from doctor.driver import kernel_module_version
from doctor.findings import Finding, fail, failed, ok, skip, warn
from doctor.secrets import without_secrets
from scripts import container, engine, listeners, names, ui
from scripts.engine import Engine

PROC = Path("/proc")
SYS = Path("/sys")
DEV = Path("/dev")
OLDEST_DRIVER = (525, 60, 13)
NVIDIA = "0x10de"
_SMI_SECONDS = 10.0
_GIB = 1024**3
# The image is 7 GB, and a build keeps as much again.
ROOM_FOR_A_BUILD, ROOM_FOR_A_RUN = 20 * _GIB, 5 * _GIB


def main() -> int:
    """Look at the machine, then let the running container look at itself."""
    findings = without_secrets(examine(), os.environ)
    if "--json" in sys.argv[1:]:
        ui.say(report.as_json(findings))
        return int(failed(findings))
    ui.say(report.as_text(findings, "this machine"))
    return max(int(failed(findings)), inside())


def examine() -> list[Finding]:
    """All that is looked at on this machine, in the order in which people read it."""
    found = engine.look()
    seen = found.engine
    return [
        check_machine(),
        check_engine(found),
        check_build(),
        check_image(seen),
        check_container(seen),
        check_gpu(),
        check_driver(),
        check_hand_over(seen),
        *check_ports(seen),
        check_disk(seen),
    ]


def check_machine() -> Finding:
    """The image is for linux/amd64."""
    kind = platform.machine()
    if kind in ("x86_64", "AMD64"):
        return ok("machine", f"{kind}, {platform.system()}")
    return warn(
        "machine",
        kind,
        "the image is for amd64: it runs here emulated, slowly, and without a GPU",
        "use a machine with an x86-64 processor for work that counts",
    )


def check_engine(found: engine.Finding) -> Finding:
    """An engine that answers, and that this user may use."""
    if found.engine:
        rootless = ", rootless" if found.engine.rootless else ""
        return ok("engine", f"{found.engine.kind} {found.engine.version}{rootless} ({found.engine.program})")
    problem = engine.explain(found)
    return fail("engine", f"{problem.what}: {problem.seen}", "no container can be started", problem.do)


def check_build() -> Finding:
    """Whether images can be built here."""
    found = engine.look(need_build=True)
    if found.engine:
        return ok("build", f"{found.engine.kind} {found.engine.version} builds")
    problem = engine.explain(found)
    return warn("build", f"{problem.what}: {problem.seen}", "images can be run, but not built", problem.do)


def check_image(seen: Engine | None) -> Finding:
    """Whether the image exists."""
    if seen is None:
        return skip("image", "no engine")
    there = [image for image in map(names.image_of, names.VARIANTS) if seen.image_id(image)]
    return ok("image", ", ".join(there) or "not built yet: make run builds it")


def check_container(seen: Engine | None) -> Finding:
    """The container of `make run`: does it run, is it healthy?"""
    if seen is None:
        return skip("container", "no engine")
    name = container.name()
    state = seen.ask("container", "inspect", "--format", "{{json .State}}", name)
    if not state.ok:
        return ok("container", f"there is no {name} yet: make run")
    told = json.loads(state.out)
    health = (told.get("Health") or told.get("Healthcheck") or {}).get("Status", "")
    if told.get("OOMKilled"):
        return fail(
            "container",
            f"{name} was killed for want of memory",
            "it used more than it or this machine has",
            "give it more (docker run --memory), or train with smaller batches",
        )
    if not told.get("Running") and told.get("ExitCode") not in (0, 130, 143):
        return fail(
            "container",
            f"{name} ended with exit code {told.get('ExitCode')}",
            "it stopped by itself",
            "make logs   (its last lines say why)",
        )
    if health == "unhealthy":
        return fail(
            "container",
            f"{name} runs, but is unhealthy",
            "a service in it does not answer",
            f"make logs; {seen.kind} restart {name}",
        )
    return ok("container", f"{name} {'runs' if told.get('Running') else 'is stopped'}{f', {health}' if health else ''}")


def check_gpu() -> Finding:
    """An NVIDIA card, and a driver for it that answers."""
    cards = [
        card
        for card in SYS.glob("bus/pci/devices/*")
        if _read(card / "vendor").strip() == NVIDIA and _read(card / "class").startswith("0x03")
    ]
    if not (cards or _kernel_version() or (DEV / "dxg").exists()):
        return skip("gpu", "this machine has no NVIDIA GPU: all runs on the CPU")
    install = "install the NVIDIA driver (Debian, Ubuntu: the package nvidia-driver), then reboot"
    if cards and not _kernel_version():
        return fail(
            "gpu", f"{len(cards)} NVIDIA card(s), but no NVIDIA driver is loaded", "no GPU can be used", install
        )
    ran = runner.run(["nvidia-smi", "-L"], _SMI_SECONDS)
    if ran.timed_out:
        return fail(
            "gpu",
            f"nvidia-smi gave no answer in {_SMI_SECONDS:g} s",
            "the driver or a GPU hangs",
            "sudo dmesg | grep -i -e nvrm -e xid; mostly only a reboot helps",
        )
    if not ran.ok:
        mismatch = "version mismatch" in ran.out + ran.err
        do = "reboot: the driver was updated, and the old one is still loaded" if mismatch else install
        return fail("gpu", f"nvidia-smi: {ran.last_line}", "the driver does not work", do)
    return ok("gpu", "; ".join(re.sub(r" \(UUID.*\)", "", line) for line in ran.out.strip().splitlines()))


def check_driver() -> Finding:
    """The oldest driver that the image's CUDA runs on."""
    version = _kernel_version()
    if not version:
        return skip("driver", "no NVIDIA driver")
    if tuple(int(part) for part in version.split(".")) >= OLDEST_DRIVER:
        return ok("driver", version)
    oldest = ".".join(map(str, OLDEST_DRIVER))
    return fail(
        "driver",
        version,
        "torch's CUDA 12.6 needs a driver of CUDA 12; the container does not start with "
        "an older one (unsatisfied condition: cuda>=12.0)",
        f"update the NVIDIA driver to {oldest} or later",
    )


def check_hand_over(seen: Engine | None) -> Finding:
    """Whether the engine can hand a GPU to a container: NVIDIA's runtime, or CDI."""
    if seen is None or not _kernel_version():
        return skip("gpu-in-containers", "no engine" if seen is None else "no NVIDIA driver")
    options, told = engine.gpu_options(seen)
    if options:
        return ok("gpu-in-containers", " ".join(options))
    return fail(
        "gpu-in-containers",
        told.partition(" To use it: ")[0],
        "`could not select device driver` or no GPU in the container",
        told.partition(" To use it: ")[2] or told,
    )


def check_ports(seen: Engine | None) -> Iterator[Finding]:
    """The ports that `make run` publishes, and who has them."""
    for variable, usual in (("PORT", "8888"), ("SSH_PORT", "2222")):
        text = os.environ.get(variable) or usual
        if not (text.isascii() and text.isdigit()):
            yield fail(f"port-{usual}", f"{variable}={text}", "make run refuses it", f"make run {variable}={usual}")
            continue
        held = listeners.holder(int(text), PROC)
        publisher = seen.ask("ps", "--filter", f"publish={text}", "--format", "{{.Names}}").out.split() if seen else []
        if not held or container.name() in publisher:
            yield ok(f"port-{usual}", f"{text} is " + (f"published by {container.name()}" if held else "free"))
            continue
        who = f"the container {publisher[0]}" if publisher else held
        yield warn(
            f"port-{usual}",
            f"{text} is taken by {who}",
            "make run stops with that",
            f"make run {variable}={int(text) + 1}",
        )


def check_disk(seen: Engine | None) -> Finding:
    """Room where the engine keeps images."""
    root = seen.ask("info", "--format", "{{.DockerRootDir}}").out.strip() if seen and seen.kind == "docker" else ""
    folder = Path(root) if root and Path(root).exists() else names.ROOT
    free = shutil.disk_usage(folder).free
    text = f"{folder}: {free / _GIB:.0f} GiB free"
    if free < ROOM_FOR_A_RUN:
        return fail("disk", text, "images and containers need more", "docker system prune; docker builder prune")
    if free < ROOM_FOR_A_BUILD:
        return warn(
            "disk",
            text,
            f"building the image takes up to {ROOM_FOR_A_BUILD // _GIB} GiB",
            "docker builder prune, or move Docker's data-root",
        )
    return ok("disk", text)


def inside() -> int:
    """The container's own findings, when it runs."""
    seen = engine.find_engine()
    found = container.find(seen, container.name()) if seen else None
    if seen is None or found is None or not found.running:
        return 0
    ui.say(f"\nin the container {found.name}")
    answer = seen.ask("exec", found.name, "doctor", timeout=120)
    ui.say((answer.out or answer.err).strip())
    return answer.code


def _kernel_version() -> str:
    return kernel_module_version(_read(PROC / "driver/nvidia/version"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    ui.entry("doctor", main)
