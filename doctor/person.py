"""Who runs here, and whether they may write what is theirs."""

from __future__ import annotations

from doctor.findings import Finding, fail, ok, warn
from doctor.patient import Patient
from doctor.resources import trial_write


def check_identity(patient: Patient) -> Finding:
    """The user id, and whether it has a name: torch.compile and getpass want one."""
    ran = patient.run(["/usr/bin/id", "-un"], 5, {k: v for k, v in patient.environ.items() if _names(k)})
    name = ran.out.strip()
    groups = ",".join(str(gid) for gid in sorted(patient.gids))
    seen = f"uid {patient.uid}, groups {groups}"
    if not ran.ok or not name or name.isdigit():
        return warn(
            "identity",
            f"{seen}, without a name",
            "torch.compile and Jupyter ask for the user's name and fail",
            "start the image with its own ENTRYPOINT, or set USER, LOGNAME and HOME",
        )
    return ok("identity", f"{name}: {seen}")


def check_home(patient: Patient) -> Finding:
    """The home folder: settings, caches, downloaded models."""
    home = patient.home
    if not home:
        return warn("home", "HOME is not set", "caches and settings have no place", "docker run -e HOME=/tmp ...")
    error = trial_write(patient.path(home))
    if not error:
        return ok("home", f"{home} is writable")
    return fail(
        "home",
        f"{home}: {error}",
        "Jupyter, pip, Hugging Face and Triton write there",
        f"docker run -v pytorch-home:{home} ..., or: docker exec -u 0 NAME chown {patient.uid} {home}",
    )


def check_workspace(patient: Patient) -> Finding:
    """/workspace and /workspace/code: where the user's work lies."""
    folders = [path for path in ("/workspace", "/workspace/code") if patient.exists(path)]
    if not folders:
        return ok("workspace", "there is no /workspace")
    for path in folders:
        error = trial_write(patient.path(path))
        if error == "it is read-only":
            return warn(
                "workspace",
                f"{path} is read-only",
                "notebooks and results cannot be saved there",
                f"mount a folder without :ro: docker run -v $PWD:{path} ...",
            )
        if error:
            return fail(
                "workspace",
                f"{path}: {error}; you are uid {patient.uid}",
                "the mounted folder belongs to somebody else: notebooks and results cannot be saved",
                "docker run -e PUID=$(id -u) -e PGID=$(id -g) ... with the folder's owner, or chown it on the host",
            )
    return ok("workspace", f"{' and '.join(folders)} can be written by uid {patient.uid}")


def _names(variable: str) -> bool:
    """What gives a nameless uid its name (nss_wrapper), and nothing else."""
    return variable == "LD_PRELOAD" or variable.startswith("NSS_WRAPPER_")
