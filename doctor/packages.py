"""The environment: is torch the one that the image brought, and can the user still change what is theirs?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Optional

from doctor import torch_build
from doctor.findings import Finding, fail, ok, skip, warn
from doctor.patient import HOME_OF_THE_IMAGE, Patient

CONSTRAINTS = f"{HOME_OF_THE_IMAGE}/constraints.txt"
_SHOWN = 3


def check_torch(patient: Patient) -> Finding:
    """Which torch is in place, and whether it is a CUDA build."""
    text = torch_build.version_file(patient)
    versions = installed(patient).get("torch", [])
    if not text:
        if not patient.in_image:
            return skip("torch", "no torch in the Python that runs this")
        if not patient.image:
            return skip("torch", "this image has no torch (thin)")
        return fail("torch", f"no torch in {patient.environment}", "import torch fails", _mend(patient))
    other = _found_earlier(patient)
    if other:
        return fail(
            "torch",
            f"Python finds {other} before the environment's own torch",
            "`import torch` takes whatever lies there",
            "unset PYTHONPATH, or remove that folder",
        )
    if len(versions) > 1:
        return fail(
            "torch",
            f"torch is installed twice: {', '.join(versions)}",
            "an installation was broken off; Python takes parts of both",
            _mend(patient),
        )
    if torch_build.cuda_version(patient) is None or re.search(r"^cuda\b[^=]*=\s*None", text, re.MULTILINE):
        return fail(
            "torch",
            f"torch {_first(versions)} is a build without CUDA",
            "torch.cuda.is_available() is False on any machine",
            _mend(patient),
        )
    built = torch_build.cuda_version(patient)
    return ok("torch", f"torch {_first(versions)}, built with CUDA {built[0]}.{built[1]}" if built else "torch")


def check_locked(patient: Patient) -> Finding:
    """Whether torch and its CUDA wheels are those of the image's lock."""
    locked = constraints(patient.read(CONSTRAINTS))
    if not locked:
        return skip("locked-packages", "not in the image" if not patient.in_image else f"no {CONSTRAINTS}")
    there = installed(patient)
    changed = [
        f"{name} {_first(there.get(name, []))} (locked: {version})"
        for name, version in locked.items()
        if [public(one) for one in there.get(name, [])] != [version]
    ]
    if not changed:
        return ok("locked-packages", f"all {len(locked)} packages of torch and CUDA are the locked ones")
    return fail(
        "locked-packages",
        _shorten(changed),
        "they fit together in the image's versions; in others, torch may not import or gives up in the middle",
        _mend(patient),
    )


def check_owner(patient: Patient) -> Finding:
    """Files in the environment that the user cannot replace, mostly because root ran pip."""
    if not patient.in_image:
        return skip("environment-files", "not in the image")
    folders = [f"{patient.environment}/bin", *patient.site_packages]
    if not any(_writable(patient, folder) for folder in folders):
        return warn(
            "environment-files",
            f"uid {patient.uid} may not write to {patient.environment}",
            "pip install then goes to the home folder; it works for members of group 0 alone",
            "docker run --user N:0 ..., or PUID/PGID in the place of --user",
        )
    fixed = [path for folder in folders for path in _entries(patient, folder) if not _writable(patient, path)]
    if not fixed:
        return ok("environment-files", f"{patient.environment} can be changed by the user")
    return warn(
        "environment-files",
        f"{_shorten(fixed)} cannot be changed by uid {patient.uid}",
        "pip was run by root (docker exec without -u user), so pip as the user cannot upgrade or remove these",
        f"docker exec -u 0 NAME chmod -R g=u {patient.environment}",
    )


def check_python(patient: Patient) -> Finding:
    """Whether the environment's interpreter starts, with the user's own settings and start-up files."""
    ran = patient.run([patient.environment_python, "-c", "pass"], 5, patient.environ)
    if ran.ok:
        return ok("python", f"{patient.environment_python} starts")
    how = "no answer in 5 s" if ran.timed_out else ran.last_line
    return fail(
        "python",
        f"{patient.environment_python}: {how}",
        "nothing of the environment can run",
        "look at LD_LIBRARY_PATH, LD_PRELOAD, PYTHONHOME and PYTHONPATH; else start a new container",
    )


def installed(patient: Patient) -> dict[str, list[str]]:
    """Package -> versions, from the names of the dist-info folders; pip itself looks no further."""
    found: dict[str, list[str]] = {}
    for folder in patient.site_packages:
        for entry in patient.names(folder):
            match = re.fullmatch(r"(.+)-([^-]+)\.dist-info", entry)
            if match and _metadata_version(patient, f"{folder}/{entry}/METADATA"):
                version = _metadata_version(patient, f"{folder}/{entry}/METADATA")
                found.setdefault(normal(match[1]), []).append(str(version))
    return found


def _found_earlier(patient: Patient) -> str:
    """A torch on PYTHONPATH or, where the environment looks there, in the user's own site-packages."""
    folders = [folder for folder in patient.variable("PYTHONPATH").split(":") if folder.startswith("/")]
    if patient.in_image and not patient.exists(f"{patient.environment}/pyvenv.cfg"):  # a venv leaves it out
        local = f"{patient.home}/.local/lib"
        folders += [f"{local}/{name}/site-packages" for name in patient.names(local)]
    found = (f"{folder}/{name}" for folder in folders for name in ("torch", "torch.py"))
    return next((path for path in found if patient.exists(path) and not _inside(patient, path)), "")


def _inside(patient: Patient, path: str) -> bool:
    return any(path.startswith(f"{folder}/") for folder in patient.site_packages)


def _metadata_version(patient: Patient, path: str) -> Optional[str]:
    match = re.search(r"^Version:\s*(\S+)", patient.read(path).split("\n\n")[0], re.MULTILINE)
    return match[1] if match else None


def constraints(text: str) -> dict[str, str]:
    """Package -> version of a constraints file's `name==version` lines."""
    lines = (re.match(r"([A-Za-z0-9._-]+)==([^\s,;]+)", line) for line in text.splitlines())
    return {normal(line[1]): line[2] for line in lines if line}


def normal(name: str) -> str:
    """A package's name as all tools compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def public(version: str) -> str:
    """A version without its local part (2.7.1+cu126)."""
    return version.partition("+")[0]


def _entries(patient: Patient, folder: str) -> Iterator[str]:
    for name in patient.names(folder):
        if name != "__pycache__":
            yield f"{folder}/{name}"


def _writable(patient: Patient, path: str) -> bool:
    """By the mode bits: as root everything would be writable, and links are not followed."""
    try:
        seen = os.lstat(patient.path(path))
    except OSError:
        return False
    if os.path.islink(patient.path(path)):
        return True
    bit = 0o200 if seen.st_uid == patient.uid else 0o020 if seen.st_gid in patient.gids else 0o002
    return bool(seen.st_mode & bit) or (patient.uid == 0 and seen.st_uid == 0)


def _mend(patient: Patient) -> str:
    if not patient.in_image:
        return "install the versions that belong together"
    locked = constraints(patient.read(CONSTRAINTS))
    wanted = " ".join(f"{name}=={version}" for name, version in locked.items() if name.startswith("torch"))
    return f"start a new container, or: pip install --force-reinstall {wanted}".rstrip()


def _first(versions: list[str]) -> str:
    return versions[0] if versions else "is missing"


def _shorten(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
