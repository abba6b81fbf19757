"""The ways in which the image may be started (docs/configuration.md), and what is to be seen in each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """One way to start: options of `docker run`, and who the user's programs then are."""

    name: str
    options: tuple[str, ...] = ()
    uid: int = 1000
    gid: int = 1000
    user: str = "user"
    home: str = "/home/user"
    # What the start says on stderr, a line each; nothing where all is as usual.
    says: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


NO_CAPABILITIES = ("--cap-drop", "ALL")
READ_ONLY = ("--read-only", "--tmpfs", "/run", "--tmpfs", "/tmp")

POWERLESS = r"uid 0 has no SETUID and SETGID capability here \(--cap-drop\)"
# /workspace and /home/user belong to group 0: another group cannot write there, and nobody on a read-only disk.
NO_WORKSPACE = r"warning: cannot write in /workspace "
NO_HOME = r"warning: /home/user cannot be written by .* the home is /tmp/"
# Docker mounts that /tmp noexec, which torch.compile cannot use.
NOEXEC = r"warning: the home /tmp/\S+ is mounted noexec, .*--tmpfs /tmp:exec"
STRANGER = (NO_WORKSPACE, NO_HOME)

_OTHER_HOME = "/tmp/pytorch-cuda-12345/home"

PROFILES = (
    Profile("root"),
    Profile("user-N-0", ("--user", "12345:0"), 12345, 0),
    Profile("user-N-0-no-capabilities", ("--user", "12345:0", *NO_CAPABILITIES), 12345, 0),
    Profile("user-N-N", ("--user", "12345:12345"), 12345, 12345, home=_OTHER_HOME, says=STRANGER),
    Profile(
        "user-N-N-no-capabilities",
        ("--user", "12345:12345", *NO_CAPABILITIES),
        12345,
        12345,
        home=_OTHER_HOME,
        says=STRANGER,
    ),
    Profile("root-no-capabilities", NO_CAPABILITIES, 0, 0, "root", "/tmp/pytorch-cuda-home-0", (POWERLESS,)),
    Profile("read-only", READ_ONLY, home="/tmp/pytorch-cuda-home-1000", says=(*STRANGER, NOEXEC)),
    Profile(
        "read-only-user-N-N",
        (*READ_ONLY, "--user", "12345:12345"),
        12345,
        12345,
        home=_OTHER_HOME,
        says=(*STRANGER, NOEXEC),
    ),
    Profile("network-none", ("--network", "none")),
    Profile("network-host", ("--network", "host")),
    Profile("pid-host", ("--pid", "host")),
    Profile("group-add", ("--group-add", "4242")),
)
