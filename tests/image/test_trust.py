"""What a user plants, root never runs: libraries, start-up files of Python and shells, programs in the environment.

Each trap leaves a mark that tells which uid sprang it. The user must spring it once, else it was no trap; then the
container is started again, and no mark of root's may be there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.lab import Lab
from tests.support.wait import until

ENVIRONMENT = "/opt/conda/envs/pytorch"
MARKS = "/workspace/marks"

# A library that leaves its mark as soon as the loader takes it. It calls the kernel itself, so that it can stand in
# for any library, libc too; and it ends the process, which would show even if the mark could not be written.
LIBRARY = r"""
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
__attribute__((constructor)) static void spring(void) {
    const char *mark = call(102, 0, 0, 0) == 0 ? "/workspace/marks/library-0" : "/workspace/marks/library-user";
    call(2, (long)mark, 0101, 0666);  /* open(mark, O_CREAT | O_WRONLY) */
    call(231, 99, 0, 0);              /* exit_group */
}
"""
BUILD = f"""
set -eu
mkdir -p {MARKS}; chmod 0777 {MARKS}
cat > /tmp/trap.c
gcc -shared -nostdlib -fPIC -o /tmp/trap.so /tmp/trap.c
for name in "$@"; do cp /tmp/trap.so {ENVIRONMENT}/lib/$name; done
"""

# Variables that make programs load or run something, pointing at what the user will plant.
LURES = {
    "LD_LIBRARY_PATH": f"{ENVIRONMENT}/lib",
    "LD_PRELOAD": f"{ENVIRONMENT}/lib/libtrap.so",
    "LD_AUDIT": f"{ENVIRONMENT}/lib/libtrap.so",
    "GCONV_PATH": f"{ENVIRONMENT}/lib",
    "PYTHONPATH": f"{ENVIRONMENT}/lib/traps",
    "PYTHONSTARTUP": f"{ENVIRONMENT}/lib/traps/sitecustomize.py",
    "PYTHONHOME": ENVIRONMENT,
    "BASH_ENV": f"{ENVIRONMENT}/lib/traps/shell",
    "ENV": f"{ENVIRONMENT}/lib/traps/shell",
    "PATH": f"{ENVIRONMENT}/bin:/usr/bin:/bin",
}
LURE_OPTIONS = [part for name, value in LURES.items() for part in ("--env", f"{name}={value}")]
QUICK_HEALTH = ("--health-interval", "1s", "--health-start-period", "0s", "--health-retries", "1")


def marks(container: Tracked) -> list[str]:
    return sorted(container.exec("/bin/busybox", "ls", MARKS).ok().out.split())


def wait_for_a_health_check(container: Tracked) -> None:
    """Let the engine run the healthcheck, which is root's, once more."""
    seen = len(container.state["Health"]["Log"] or ())
    until(
        "the health to change",
        lambda: len(container.state["Health"]["Log"] or ()) > min(seen, 4) or None,
        lambda: str(container.state["Health"]),
    )


@pytest.mark.parametrize("names", [["libz.so.1", "libexpat.so.1", "libm.so.6", "libtrap.so"], ["libc.so.6"]])
def test_root_loads_no_library_of_the_users(containers: Containers, thin: str, names: Sequence[str]) -> None:
    """The user's own command is a static program, which goes on whatever lies in the environment."""
    container = containers.start(
        thin, "/bin/busybox", "sleep", "600", options=[*LURE_OPTIONS, *QUICK_HEALTH], quiet=False
    )
    container.wait_for_process("sleep")
    plain = ["/bin/busybox", "env", "-i", "PATH=/usr/bin:/bin"]
    container.exec(*plain, "sh", "-c", BUILD, "sh", *names, user="user", stdin=LIBRARY.encode()).ok()
    sprung = container.exec("/usr/bin/python3", "-c", "", user="user")
    assert sprung.code != 0, f"the trap is no trap: {sprung}"
    container.restart()
    container.wait_for_process("sleep")
    wait_for_a_health_check(container)
    assert container.state["Health"]["Log"][-1]["ExitCode"] == 0, container.state["Health"]
    seen = marks(container)
    assert "library-0" not in seen
    # The libc that is a trap is refused before its first instruction: it has no symbol versions.
    assert "library-user" in seen or names == ["libc.so.6"]


# Leaves `NAME-UID`; a program then goes on as the real one would, so that JupyterLab still starts.
PROGRAM = f"""#!/bin/busybox sh
/bin/busybox touch {MARKS}/$(/bin/busybox basename "$0")-$(/bin/busybox id -u)
case "$0" in */python*) exec -a "$0" "$0.real" "$@" ;; esac
for folder in /usr/sbin /usr/bin /sbin /bin; do
    program=$folder/$(/bin/busybox basename "$0")
    [ -x $program ] && exec $program "$@"
done
"""
PYTHON_START = f"""
import os
open(f"{MARKS}/NAME-{{os.getuid()}}", "w").close()
"""
PLANT = f"""
set -eu
mkdir -p {MARKS}; chmod 0777 {MARKS}
cd {ENVIRONMENT}/bin
mv python python.real; cat > program; chmod 0755 program; cp program python
for name in doctor bash sh env id tini tini-static busybox setpriv ldd ls cat chown getent uname ldconfig; do
    cp program $name
done
site=$(echo {ENVIRONMENT}/lib/python3.*/site-packages)
for name in sitecustomize usercustomize; do
    printf '%s' "$PYTHON_START" | /bin/busybox sed s/NAME/$name/ > $site/$name.py
done
mkdir -p {ENVIRONMENT}/lib/traps
echo "import os; open('{MARKS}/pth-' + str(os.getuid()), 'w').close()" > $site/planted.pth
printf '%s' "$PYTHON_START" | /bin/busybox sed s/NAME/path/ > {ENVIRONMENT}/lib/traps/sitecustomize.py
for module in json os socket entrypoint doctor encodings; do
    printf '%s' "$PYTHON_START" | /bin/busybox sed s/NAME/module/ > /workspace/$module.py
done
echo "/bin/busybox touch {MARKS}/shell-\\$(/bin/busybox id -u)" > {ENVIRONMENT}/lib/traps/shell
"""


def test_root_runs_no_program_or_start_up_file_of_the_users(containers: Containers, image: str) -> None:
    lures = {name: value for name, value in LURES.items() if not name.startswith(("LD_", "PYTHONHOME", "GCONV"))}
    options = [part for name, value in lures.items() for part in ("--env", f"{name}={value}")]
    publish = ("--publish", "127.0.0.1::8888")
    container = containers.start(image, options=[*options, *QUICK_HEALTH, *publish], quiet=False)
    Lab.of(container)
    plant = ["env", f"PYTHON_START={PYTHON_START}", "/bin/busybox", "sh", "-c", PLANT]
    container.exec(*plant, user="user", stdin=PROGRAM.encode()).ok()
    container.restart()
    Lab.of(container)
    wait_for_a_health_check(container)
    seen = marks(container)
    # On PYTHONPATH `path` comes before the environment's own sitecustomize, and a venv takes no usercustomize.
    assert {"python-1000", "path-1000", "pth-1000"} <= set(seen), "the traps are no traps"
    assert [mark for mark in seen if not mark.endswith("-1000")] == []


def test_a_broken_environment_does_not_keep_a_container_from_starting(containers: Containers, image: str) -> None:
    """What a failed `pip install` leaves: the shell, with which it is mended, still comes up."""
    container = containers.start(image, "sleep", "600")
    container.wait_for_process("sleep")
    ruin = f"cd {ENVIRONMENT}; rm -rf lib/python3.*/site-packages bin/python* bin/jupyter*"
    container.exec("sh", "-c", ruin, user="user").ok()
    container.restart()
    container.wait_for_process("sleep")
    assert container.exec("id", "-u", user="user").ok().out == "1000\n"


def test_roots_own_files_are_closed_to_the_user(containers: Containers, image: str) -> None:
    """Nothing under the folders of root's code and of the system may be written by the user."""
    find = (
        "find / -xdev ! -type l -writable ! -path '/proc/*' ! -path '/opt/conda/envs/*' ! -path '/tmp/*'"
        " ! -path '/var/tmp*' ! -path '/dev/*' ! -path '/home/user*' ! -path '/workspace*' ! -path '/run/lock*'"
        " ! -path /tmp 2>/dev/null || true"
    )
    assert containers.run(image, "sh", "-c", find).ok().out == ""


def test_only_known_programs_raise_rights(containers: Containers, image: str) -> None:
    done = containers.run(image, "sh", "-c", "find / -xdev -type f -perm /6000 2>/dev/null | sort; true").ok()
    names = {line.rpartition("/")[2] for line in done.out.split()}
    known = {
        *("chage", "chfn", "chsh", "expiry", "gpasswd", "newgrp", "passwd", "su", "sudo", "mount", "umount"),
        *("ssh-agent", "ssh-keysign", "unix_chkpwd"),
    }
    assert names <= known, names - known
