"""Which container engine this machine has, and how it gets one.

An engine is a program that answers with a server, not a client that happens to lie on the PATH.
Docker builds, runs and tests; Podman runs and tests an image that exists already.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import daemon, packages, process, ui
from scripts.process import Result

OLDEST_THAT_BUILDS = 25  # ADD --checksum in Docker's built-in frontend
USUAL_DOCKERS = ("/usr/bin/docker", "/usr/local/bin/docker")


@dataclass(frozen=True)
class Engine:
    """An engine that answers."""

    program: str
    kind: str  # "docker" or "podman"
    version: str = ""
    rootless: bool = False

    def command(self, *arguments: str) -> list[str]:
        """Give a command line of this engine."""
        return [self.program, *arguments]

    def ask(self, *arguments: str, timeout: float = 60) -> Result:
        """Run the engine and collect what it says."""
        return process.capture(self.command(*arguments), timeout)

    def image_id(self, image: str) -> str | None:
        """Give the id of an image, or None when it does not exist here."""
        answer = self.ask("image", "inspect", "--format", "{{.Id}}", image)
        return answer.out.strip() or None if answer.ok else None


@dataclass(frozen=True)
class Finding:
    """What a look at the machine found: an engine, or why there is none."""

    engine: Engine | None
    trouble: str = ""  # "absent", "stopped", "denied", "remote", "no-buildx", "old"
    seen: str = ""
    client: str = ""


def find_engine(need_build: bool = False) -> Engine | None:
    """Find an engine that answers; with need_build one that can build. Changes nothing."""
    return look(need_build).engine


def ensure_engine(need_build: bool = False) -> Engine:
    """Find an engine, or install and start Docker where that is possible and allowed."""
    finding = look(need_build)
    if finding.engine is None and finding.trouble == "absent":
        packages.install(packages.missing(engine=True), "This machine has no container engine, and one is needed")
        finding = look(need_build)
    if finding.engine is None and finding.trouble == "no-buildx":
        packages.install(packages.missing(buildx=True), "This Docker lacks buildx, and a build needs it")
        finding = look(need_build)
    if finding.engine is None and finding.trouble == "stopped" and _may_start():
        daemon.start(finding.client)
        finding = look(need_build)
    if finding.engine is None:
        raise explain(finding)
    return finding.engine


def _may_start() -> bool:
    return os.geteuid() == 0 and os.environ.get("NO_INSTALL") != "1" and daemon.program() is not None


def look(need_build: bool = False) -> Finding:
    """Look at every docker client, then at Podman; the first that does what is needed is it."""
    findings = [_look_at_docker(client, need_build) for client in clients()]
    if not need_build:
        findings.append(_look_at_podman())
    found = next((finding for finding in findings if finding.engine), None)
    if found:
        return found
    # The trouble nearest to working is the one worth mending.
    order = ("old", "no-buildx", "denied", "remote", "stopped", "absent")
    troubles = sorted((f for f in findings if f.trouble), key=lambda f: order.index(f.trouble))
    return troubles[0] if troubles else Finding(None, "absent", "no docker or podman command")


def clients() -> list[str]:
    """List the docker clients: the one on the PATH first, then the usual places."""
    first = shutil.which("docker")
    rest = [path for path in USUAL_DOCKERS if os.access(path, os.X_OK)]
    return list(dict.fromkeys([*([first] if first else []), *rest]))


def _look_at_docker(client: str, need_build: bool) -> Finding:
    answer = process.capture([client, "version", "--format", "{{json .}}"], timeout=20)
    if "podman" in (answer.out + answer.err).lower():
        return Finding(None, "absent", f"{client} is Podman's imitation of it", client)
    server = _server_version(answer)
    if server is None:
        return Finding(None, _why_no_server(answer), answer.last_words, client)
    if need_build and _major(server) < OLDEST_THAT_BUILDS:
        return Finding(None, "old", f"Docker {server}", client)
    if need_build and not (buildx := process.capture([client, "buildx", "version"])).ok:
        return Finding(None, "no-buildx", buildx.last_words, client)
    security = process.capture([client, "info", "--format", "{{json .SecurityOptions}}"])
    return Finding(Engine(client, "docker", server, "name=rootless" in security.out), client=client)


def _server_version(answer: Result) -> str | None:
    try:
        return str(json.loads(answer.out)["Server"]["Version"])
    except (ValueError, KeyError, TypeError):
        return None


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match[0]) if match else 0


def _why_no_server(answer: Result) -> str:
    if "permission denied" in answer.err.lower():
        return "denied"
    if os.environ.get("DOCKER_HOST"):
        return "remote"
    # A client alone is no engine: without a daemon's program there is nothing that could be started.
    # On a Mac the daemon lies in Docker Desktop's own machine.
    return "stopped" if daemon.program() or os.uname().sysname == "Darwin" else "absent"


def _look_at_podman() -> Finding:
    program = shutil.which("podman")
    if program is None:
        return Finding(None)
    answer = process.capture([program, "info", "--format", "{{.Version.Version}} {{.Host.Security.Rootless}}"])
    if not answer.ok:
        return Finding(None)
    version, _, rootless = answer.out.strip().partition(" ")
    return Finding(Engine(program, "podman", version, rootless == "true"), client=program)


def explain(finding: Finding) -> ui.UserError:
    """Turn a trouble into a message with its remedy."""
    what, do = _REMEDIES[finding.trouble]
    return ui.UserError(what, finding.seen, do.format(start=daemon.start_command()))


_REMEDIES = {
    "absent": ("no container engine answers", "install Docker 25 or later with its buildx plugin, and start it"),
    "stopped": ("Docker is installed, but its daemon does not run, and may not be started from here", "{start}"),
    "denied": (
        "this user may not use Docker's socket",
        "sudo usermod -aG docker $USER   (then log in again), or: sudo make ...",
    ),
    "remote": ("the Docker named by DOCKER_HOST does not answer", "start it, or: unset DOCKER_HOST"),
    "no-buildx": ("this Docker cannot build: its buildx plugin is missing", "install the package docker-buildx"),
    "old": (
        f"this Docker is too old to build the image; {OLDEST_THAT_BUILDS} or later is needed",
        "install a newer one (containers that run now stop while it is replaced)",
    ),
}


def gpu_options(engine: Engine) -> tuple[list[str], str]:
    """Give the options that hand the GPUs to a container, and a line that says what was decided."""
    if not has_gpu():
        return [], "No NVIDIA GPU was found on this machine: running on the CPU."
    if engine.kind == "podman":
        if any(Path(folder, "nvidia.yaml").exists() for folder in ("/etc/cdi", "/var/run/cdi")):
            return ["--device", "nvidia.com/gpu=all"], "Using the NVIDIA GPUs of this machine."
        remedy = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    else:
        if _docker_knows_gpus(engine):
            return ["--gpus", "all"], "Using the NVIDIA GPUs of this machine."
        remedy = "nvidia-ctk runtime configure --runtime=docker, then restart Docker"
    return [], (
        "An NVIDIA GPU was found, but the engine cannot hand it to a container: running on the CPU. "
        f"To use it: install nvidia-container-toolkit, then {remedy}."
    )


def has_gpu() -> bool:
    """Tell whether the driver shows a GPU; nvidia-smi alone may lie on a machine without one."""
    return Path("/dev/nvidiactl").exists() or "GPU" in process.capture(["nvidia-smi", "-L"], timeout=20).out


def _docker_knows_gpus(engine: Engine) -> bool:
    runtimes = engine.ask("info", "--format", "{{json .Runtimes}}").out
    return "nvidia" in runtimes or shutil.which("nvidia-container-runtime-hook") is not None


def caller(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Give the uid and gid of who types: under sudo that is not root."""
    variables = os.environ if environ is None else environ
    if os.getuid() == 0:
        return int(variables.get("SUDO_UID") or 0), int(variables.get("SUDO_GID") or 0)
    return os.getuid(), os.getgid()


def identity_options(engine: Engine, environ: Mapping[str, str] | None = None) -> list[str]:
    """Give PUID and PGID of the caller: never 0, and nothing to a rootless engine, whose root is the caller."""
    uid, gid = caller(environ)
    if uid == 0 or engine.rootless:
        return []
    return ["-e", f"PUID={uid}", *(["-e", f"PGID={gid}"] if gid else [])]
