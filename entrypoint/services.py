"""Which services a mode starts. A service is added here, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from entrypoint import code, jupyter, sshd
from entrypoint.command import Plan
from entrypoint.errors import StartError
from entrypoint.identity import Identity
from entrypoint.log import say, warn
from entrypoint.privileges import run_as
from entrypoint.probes import record_probes
from entrypoint.rundir import make_folder, write_file
from entrypoint.secrets import UnreadableError, read_as_user, reader_for
from entrypoint.settings import Settings
from entrypoint.sudo import set_up_sudo
from entrypoint.supervise import Service
from entrypoint.user import User

# A service, and how it is asked whether it is up.
Planned = tuple[Service, Mapping[str, object]]

_WITH_LAB = ("auto", "jupyter", "all")
_WITH_SSHD = ("auto", "ssh", "all")


def refuse_missing(mode: str) -> None:
    """Stop a mode whose programs are not in this image."""
    if mode == "code" and not code.is_there():
        raise _missing(mode, "it has no VS Code", "docker run -p 8080:8080 pytorch-cuda:v2.7-code code")
    if mode in _WITH_LAB and not os.path.exists(jupyter.LAB):
        raise _missing(mode, f"{jupyter.LAB} is missing", "use the full image (docker run IMAGE --version)")


def _missing(mode: str, seen: str, do: str) -> StartError:
    return StartError(f"this image cannot start the mode {mode!r}", seen, do)


def refuse_early(mode: str, settings: Settings, user: User) -> None:
    """Before the start hooks, which may take long: stop where ssh was asked for and cannot work."""
    if mode in ("ssh", "all"):
        sshd.refuse(settings, user, sshd.read_keys(settings, user))


def plan_services(plan: Plan, settings: Settings, user: User) -> list[Service]:
    """Prepare the services of the mode and write down how each is asked whether it is up."""
    set_up_sudo(settings["GRANT_SUDO"], user.identity, user.environ, user.rundir)
    planned = [*_sshd(plan, settings, user), *_lab(plan, settings, user), *_editor(plan, settings, user)]
    record_probes(user.rundir, [probe for _, probe in planned])
    return [service for service, _ in planned]


def _sshd(plan: Plan, settings: Settings, user: User) -> Iterator[Planned]:
    daemon = _plan_sshd(plan.word, settings, user) if plan.word in _WITH_SSHD else None
    if daemon:
        yield daemon.service, daemon.probe


def _lab(plan: Plan, settings: Settings, user: User) -> Iterator[Planned]:
    if plan.word in _WITH_LAB:
        lab = _plan_lab(plan.argv, settings, user)
        yield _lab_service(lab, user), lab.probe


def _editor(plan: Plan, settings: Settings, user: User) -> Iterator[Planned]:
    if plan.word == "code":
        editor = _plan_editor(settings, user)
        yield _editor_service(editor, user), editor.probe


def _plan_sshd(mode: str, settings: Settings, user: User) -> Optional[sshd.Sshd]:
    """Where nobody asked for ssh by name, JupyterLab starts all the same, and a line says what is missing."""
    try:
        keys = sshd.read_keys(settings, user)
        if mode == "auto" and not keys and not keys.problems:
            say(sshd.how_to_turn_on(user))
            return None
        sshd.refuse(settings, user, keys)
        daemon = sshd.plan_sshd(settings, user, keys)
    except StartError as error:
        if mode != "auto":
            raise
        warn(f"sshd is not started: {error.what} ({error.seen}). {error.do}")
        return None
    for line in daemon.warnings:
        warn(line)
    for line in daemon.lines:
        say(line)
    return daemon


def _plan_lab(arguments: Sequence[str], settings: Settings, user: User) -> jupyter.Lab:
    _check_https(settings, user.identity)
    token_path = user.rundir / jupyter.TOKEN_FILE
    login = jupyter.choose_login(
        settings,
        jupyter.parse_options(arguments),
        reader_for(user.identity),
        _kept_token(token_path, user.identity),
        jupyter.make_token,
    )
    lab = jupyter.plan_lab(
        settings, arguments, login, user.identity.uid == 0, str(token_path), jupyter.listen_address()
    )
    if login.source == "new":
        _write_for_user(token_path, login.token.encode() + b"\n", user.identity)
    make_folder(user.rundir / "jupyter")
    _write_for_user(user.rundir / jupyter.CONFIG_FILE, lab.config, user.identity)
    for line in lab.warnings:
        warn(line)
    for line in lab.lines:
        say(line)
    return lab


def _lab_service(lab: jupyter.Lab, user: User) -> Service:
    environ = {**user.environ, b"JUPYTER_CONFIG_PATH": _config_path(user), **_spare_data_folder(user)}
    return Service("jupyter", list(lab.argv), environ, jupyter.ROOT_FOLDER, user.identity)


def _plan_editor(settings: Settings, user: User) -> code.Editor:
    token_path, config_path = user.rundir / code.TOKEN_FILE, user.rundir / code.CONFIG_FILE
    kept = _kept_token(token_path, user.identity)
    login = code.choose_login(settings, reader_for(user.identity), kept, jupyter.make_token)
    editor = code.plan_editor(settings, login, str(config_path), str(token_path), jupyter.listen_address())
    if login.source == "new":
        _write_for_user(token_path, login.token.encode() + b"\n", user.identity)
    make_folder(config_path.parent)
    _write_for_user(config_path, editor.config, user.identity)
    for line in editor.lines:
        say(line)
    return editor


def _editor_service(editor: code.Editor, user: User) -> Service:
    environ = {name: value for name, value in user.environ.items() if name not in code.NOT_PASSED}
    return Service("code", list(editor.argv), environ, code.ROOT_FOLDER, user.identity)


def _config_path(user: User) -> bytes:
    """Ours first, so that the login of this start counts, then what the user set."""
    ours = os.fsencode(user.rundir / os.path.dirname(jupyter.CONFIG_FILE))
    theirs = user.environ.get(b"JUPYTER_CONFIG_PATH", b"")
    return ours + b":" + theirs if theirs else ours


def _spare_data_folder(user: User) -> dict[bytes, bytes]:
    """A place for Jupyter's own files when the home has none for them: it would end with a traceback."""
    if b"JUPYTER_DATA_DIR" in user.environ:
        return {}
    problem = run_as(user.identity, lambda: _data_folder_problem(user.identity.home))
    if not problem:
        return {}
    spare: str = run_as(user.identity, lambda: _make_spare(user.identity.uid))
    warn(
        f"Jupyter cannot write {problem}: that part of the home is not the user's. On the home volume, "
        f"as root: chown -R {user.identity.uid} .local .jupyter .ipython .cache"
    )
    return {b"JUPYTER_DATA_DIR": os.fsencode(spare)}


def _data_folder_problem(home: str) -> str:
    """The folder that Jupyter could not write and why, or nothing; called as the user."""
    folder = os.path.join(home, ".local", "share", "jupyter", "runtime")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as error:
        return f"{folder} ({error.strerror})"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} (Permission denied)"


def _make_spare(uid: int) -> str:
    path = f"/tmp/jupyter-{uid}-{os.urandom(8).hex()}"
    os.mkdir(path, 0o700)
    return path


def _check_https(settings: Settings, identity: Identity) -> None:
    jupyter.check_pair(settings)
    cert, key = settings["JUPYTER_CERT_FILE"], settings["JUPYTER_KEY_FILE"]
    if cert:
        jupyter.refuse_certificate(run_as(identity, lambda: jupyter.certificate_problem(cert, key)))


def _kept_token(path: Path, identity: Identity) -> Optional[str]:
    """The token of an earlier start; the file is the user's, so it is read as the user."""
    text: Optional[str] = run_as(identity, lambda: _read_line(path))
    return text


def _read_line(path: Path) -> Optional[str]:
    try:
        return read_as_user(str(path)).decode("ascii", "replace").strip()
    except UnreadableError:
        return None


def _write_for_user(path: Path, data: bytes, identity: Identity) -> None:
    write_file(path, data, 0o600, identity.uid, identity.gid)
