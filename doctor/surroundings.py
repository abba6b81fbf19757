"""The clock, the network's names, the compiler: what programs take for granted."""

from __future__ import annotations

import os
import shutil
import socket
import time

from doctor.findings import Finding, fail, ok, skip, warn
from doctor.patient import HOME_OF_THE_IMAGE, Patient

# Asks in another process: a resolver without a network can take half a minute.
_RESOLVE = "import socket, sys; print(socket.getaddrinfo(sys.argv[1], None)[0][4][0])"
_SECONDS = 3.0


def check_clock(patient: Patient) -> Finding:
    """A clock that is far off makes every certificate invalid."""
    now = _now()
    built = _time_of(patient.path(f"{HOME_OF_THE_IMAGE}/image.json")) or _time_of(__file__)
    if built - 86400 <= now < built + 30 * 365 * 86400:
        return _check_zone(patient, now)
    return fail(
        "clock",
        f"the clock says {time.strftime('%Y-%m-%d %H:%M', time.gmtime(now))} UTC, which cannot be",
        "certificates are not valid then: pip, git and downloads fail",
        "set the host's clock (timedatectl set-ntp true; WSL2: wsl --shutdown)",
    )


def _now() -> float:
    return time.time()


def _check_zone(patient: Patient, now: float) -> Finding:
    zone = patient.variable("TZ")
    if zone and not zone.startswith(":") and "/" in zone and not patient.exists(f"/usr/share/zoneinfo/{zone}"):
        return warn(
            "clock",
            f"TZ={zone} is no time zone that is known here",
            "times are then shown in UTC",
            "docker run -e TZ=Asia/Shanghai ... (a name below /usr/share/zoneinfo)",
        )
    return ok("clock", f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(now))} UTC" + (f", TZ={zone}" if zone else ""))


def check_host_name(patient: Patient) -> Finding:
    """The container's own name: gloo and torchrun look it up."""
    name = patient.read("/etc/hostname").strip() or socket.gethostname()
    ran = patient.run([patient.python, "-I", "-S", "-c", _RESOLVE, name], _SECONDS, {})
    if ran.ok:
        return ok("host-name", f"{name} is {ran.out.strip()}")
    how = f"no answer in {_SECONDS:g} s" if ran.timed_out else "not known"
    return warn(
        "host-name",
        f"{name}: {how}",
        "`torchrun --standalone` waits for it without end, and gloo finds no address",
        'torchrun --local-addr 127.0.0.1 ..., or docker run --add-host "$(hostname):127.0.0.1" ...',
    )


def check_dns(patient: Patient) -> Finding:
    """Whether names outside can be looked up at all; nothing is sent."""
    if patient.names("/sys/class/net") in (["lo"], []):
        return skip("name-resolution", "no network (--network none)")
    lines = patient.read_kernel("/etc/resolv.conf").split("\n")
    servers = [line.split()[1] for line in lines if line.startswith("nameserver") and len(line.split()) > 1]
    if servers:
        return ok("name-resolution", f"asks {', '.join(servers)}")
    return warn(
        "name-resolution",
        "/etc/resolv.conf names no server",
        "pip, git and downloads find no host",
        'docker run --dns 1.1.1.1 ..., or "dns" in /etc/docker/daemon.json',
    )


def check_interfaces(patient: Patient) -> Finding:
    """GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME: gloo takes one plain name, NCCL a list or an exclusion."""
    there = patient.names("/sys/class/net")
    gloo = patient.variable("GLOO_SOCKET_IFNAME")
    if gloo and gloo not in there:
        return fail(
            "interfaces",
            f"GLOO_SOCKET_IFNAME={gloo}; this container has: {' '.join(there)}",
            "gloo takes one plain name of an interface, not ^lo or a list as NCCL does",
            f"-e GLOO_SOCKET_IFNAME={next((one for one in there if one != 'lo'), 'lo')}",
        )
    nccl = patient.variable("NCCL_SOCKET_IFNAME")
    if nccl and not nccl.startswith("^"):
        wanted = [one.lstrip("=").split(":")[0] for one in nccl.split(",")]
        if not any(name.startswith(one) for one in wanted for name in there):
            return fail(
                "interfaces",
                f"NCCL_SOCKET_IFNAME={nccl}; this container has: {' '.join(there)}",
                "NCCL finds no interface to use",
                "unset NCCL_SOCKET_IFNAME, or exclude: ^lo,docker",
            )
    return ok("interfaces", " ".join(there) or "none")


def check_compiler(patient: Patient) -> Finding:
    """torch.compile and Triton build small programs at run time."""
    found = {name: shutil.which(name, path=patient.variable("PATH") or os.defpath) for name in ("gcc", "g++")}
    missing = [name for name, path in found.items() if not path]
    if not missing:
        return ok("compiler", "gcc and g++ are on PATH")
    return warn(
        "compiler",
        f"no {' and no '.join(missing)} on PATH",
        "torch.compile and Triton build programs with them",
        "use the full image, or put the system's folders back on PATH (/usr/bin)",
    )


def _time_of(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
