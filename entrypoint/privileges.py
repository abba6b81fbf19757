"""Becoming the user, for this process or for one function in a child."""

from __future__ import annotations

import os
import signal
import stat
from typing import TYPE_CHECKING, Any, Callable, Optional

from entrypoint.errors import StartError

if TYPE_CHECKING:
    from entrypoint.identity import Identity

# 002: what the user makes in the environment's folders stays writable for group 0.
UMASK = 0o002


def become(identity: Identity) -> None:
    """Turn this process into the user, for good."""
    os.umask(UMASK)
    if not identity.drop:
        return
    _set_groups(identity)
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)
    _check(identity)


def run_as(identity: Identity, function: Callable[[], Any]) -> Any:
    """Call the function as the user and return its result, which must fit into JSON.

    An OSError or a StartError that it raises is raised here.
    """
    if not identity.drop:
        return function()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _report(identity, function, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return _unpack(text)


def give_stdio(identity: Identity) -> None:
    """Let the user open /dev/stdout and the terminal by name: engines make both for root.

    Pipes and terminals only; a file or a device may be someone else's.
    """
    if not identity.drop:
        return
    for fd in (0, 1, 2):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode) or os.isatty(fd):
                os.fchown(fd, identity.uid, -1)
        except OSError:
            pass  # closed, or no CAP_CHOWN: the open file works all the same


def reset_signals(mask: Optional[set[int]] = None) -> None:
    """Give a program that is about to be executed the signals that Python changed."""
    for name in ("SIGINT", "SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask or set())


def _set_groups(identity: Identity) -> None:
    try:
        os.setgroups(sorted({identity.gid, *identity.groups}))
    except PermissionError:
        # A user namespace may forbid it (/proc/self/setgroups); the groups are the caller's there.
        if not identity.mapped:
            raise


def _check(identity: Identity) -> None:
    """A kernel or a sandbox that says yes and does nothing must not leave the user root."""
    uids, gids = set(os.getresuid()), set(os.getresgid())
    if uids != {identity.uid} or gids != {identity.gid}:
        raise StartError(
            "the process could not take the user's ids",
            f"uid {sorted(uids)}, gid {sorted(gids)} instead of {identity.uid}:{identity.gid}",
            f"start with: docker run --user {identity.uid}:0 ...",
        )


def _report(identity: Identity, function: Callable[[], Any], writer: int) -> None:
    """The child's life: become the user, call, answer, end without the parent's clean-up."""
    import json

    try:
        become(identity)
        answer: dict[str, Any] = {"result": function()}
    except StartError as error:
        answer = {"start": [error.what, error.seen, error.do, error.code]}
    except OSError as error:
        answer = {"os": [error.errno, error.strerror, _text(error.filename)]}
    except BaseException as error:
        answer = {"bug": repr(error)}
    try:
        with os.fdopen(writer, "wb") as out:
            out.write(json.dumps(answer).encode())
    finally:
        os._exit(0)  # also when nobody listens any more (Ctrl-C): this is a copy of the entrypoint, and must not go on


def _text(name: Any) -> Optional[str]:
    return None if name is None else os.fsdecode(name) if isinstance(name, (str, bytes)) else str(name)


def _unpack(text: bytes) -> Any:
    import json

    answer = json.loads(text) if text else {"bug": "the child ended without an answer"}
    if "result" in answer:
        return answer["result"]
    if "start" in answer:
        raise StartError(*answer["start"])
    if "os" in answer:
        raise OSError(*answer["os"])
    raise RuntimeError(answer["bug"])
