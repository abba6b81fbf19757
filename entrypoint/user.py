"""Everything a start does about the user: ids, workspace, home, name and environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from entrypoint.command import Plan
from entrypoint.environment import user_environment
from entrypoint.home import prepare_home
from entrypoint.identity import Identity, plan_identity
from entrypoint.log import say
from entrypoint.machine import read_machine
from entrypoint.names import set_up_names
from entrypoint.ownership import prepare_workspace
from entrypoint.rundir import make_rundir
from entrypoint.settings import Settings
from entrypoint.tuning import thread_pools


@dataclass(frozen=True)
class User:
    """Who the user's processes are, and what they get."""

    identity: Identity
    rundir: Path
    environ: Mapping[bytes, bytes]
    # Those of this process, not of the user's.
    capabilities: frozenset[str] = frozenset()
    # What gives the user's uid its name where /etc/passwd does not; part of `environ`, too.
    names: Mapping[str, str] = field(default_factory=dict)


def set_up_user(plan: Plan, settings: Settings, container: Mapping[bytes, bytes]) -> User:
    """Do what the user's processes need, whichever they are."""
    machine = read_machine(container)
    identity = plan_identity(machine, settings["PUID"], settings["PGID"])
    for note in identity.notes:
        say(note)
    rundir = make_rundir(identity)
    prepare_workspace(identity, machine)
    identity = replace(identity, home=prepare_home(identity, rundir))
    names = set_up_names(identity, rundir, container)
    extra = {**thread_pools(container), **names}
    environ = user_environment(
        container, identity.name, identity.home, extra, keep_secrets=plan.kind == "exec" and not plan.ours
    )
    return User(identity, rundir, environ, machine.caps, names)
