"""What the image says about itself, and what must not lie in any of its files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.containers import Containers

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "python-cu126.lock"

# Run by root's interpreter with the entrypoint out of the way: the image as it was built.
LOOK = r"""
import glob, json, os, stat
def files(*patterns):
    found = []
    for pattern in patterns:
        for path in glob.glob(pattern):
            if os.path.isdir(path) and not os.path.islink(path):
                found += [os.path.join(a, n) for a, _, names in os.walk(path) for n in names]
            else:
                found.append(path)
    return sorted(found)
def mode(path):
    seen = os.stat(path)
    return [seen.st_uid, seen.st_gid, oct(stat.S_IMODE(seen.st_mode))]
def text(path):
    try:
        return open(path).read()
    except FileNotFoundError:
        return None
environment = "/opt/conda/envs/pytorch"
odd = []
for parent, folders, names in os.walk(environment):
    seen = os.stat(parent)
    if seen.st_gid != 0 or stat.S_IMODE(seen.st_mode) & 0o2070 != 0o2070:
        odd.append([parent, *mode(parent)])
    for name in names:
        seen = os.lstat(os.path.join(parent, name))
        if not stat.S_ISLNK(seen.st_mode) and (seen.st_gid != 0 or not seen.st_mode & 0o020):
            odd.append(os.path.join(parent, name))
print(json.dumps({
    "host_keys": files("/etc/ssh/ssh_host_*"),
    "logs": files("/var/log"),
    "temporary": [p for p in files("/tmp", "/var/tmp") ],
    "caches": files("/var/lib/apt/lists/*_*", "/var/cache/apt/archives/*.deb", "/var/cache/apt/*.bin",
        "/var/cache/debconf/*-old", "/var/lib/dpkg/*-old", "/var/cache/ldconfig/aux-cache",
        "/root/.cache", "/home/user/.cache", "/root/.conda", "/opt/conda/pkgs", environment + "/.lock"),
    "backups": files(*(f"/etc/{n}-" for n in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid"))),
    "run": files("/run/pytorch-cuda"),
    "home": files("/home/user"), "roots_home": files("/root/.*history", "/root/.ssh"),
    "machine_id": text("/etc/machine-id"),
    "shadow": [line.split(":")[:2] for line in text("/etc/shadow").splitlines()],
    "passwd": [line.split(":") for line in text("/etc/passwd").splitlines()],
    "nsswitch": text("/etc/nsswitch.conf"),
    "image": json.loads(text("/opt/pytorch-cuda/image.json") or "{}"),
    "modes": {p: mode(p) for p in ("/opt/pytorch-cuda", "/opt/pytorch-cuda/lib", "/opt/pytorch-cuda/site",
        "/opt/pytorch-cuda/bin", "/workspace", "/workspace/code", "/home/user", "/etc/pytorch-cuda/start.d")},
    "odd": odd[:50],
    "cr": [p for p in files("/opt/pytorch-cuda/bin", "/opt/pytorch-cuda/lib", "/opt/pytorch-cuda/site")
        if p.endswith(".py") and b"\r" in open(p, "rb").read()],
}))
"""
WHEELS = """
import importlib.metadata as m, json, re
name = lambda d: re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower()
print(json.dumps(sorted({(name(d), d.version) for d in m.distributions()})))
"""


@pytest.fixture(scope="module")
def seen(shared_containers: Containers, image: str) -> dict[str, Any]:
    """The files of the image, as root sees them."""
    options = ["--entrypoint", "/opt/pytorch-cuda/python", "--network", "none"]
    done = shared_containers.run(image, "-I", "-c", LOOK, options=options).ok()
    return dict(json.loads(done.out))


@pytest.fixture(scope="module")
def config(client: Any, image: str) -> dict[str, Any]:
    """The image's configuration."""
    return dict(client.images.get(image).attrs["Config"])


def test_the_first_process_is_tini_and_roots_interpreter_starts_with_nothing(config: dict[str, Any]) -> None:
    static = ["/bin/busybox", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
    python = ["/opt/pytorch-cuda/python", "-I", "-S"]
    assert config["Entrypoint"] == [
        *("/usr/bin/tini-static", "-s", "--"),
        *static,
        *python,
        "/opt/pytorch-cuda/lib/start.py",
    ]
    assert config["Healthcheck"]["Test"] == ["CMD", *static, *python, "/opt/pytorch-cuda/lib/healthcheck.py"]
    assert not config["Cmd"]


def test_ports_folder_and_user_are_as_promised(config: dict[str, Any]) -> None:
    assert set(config["ExposedPorts"]) == {"8888/tcp", "22/tcp"}
    assert config["WorkingDir"] == "/workspace"
    assert config["User"] in ("", "root", "0"), "root sets up, and then drops itself"
    assert not config.get("Volumes")


def test_the_variables_are_as_promised(config: dict[str, Any]) -> None:
    variables = dict(entry.split("=", 1) for entry in config["Env"])
    assert variables["LANG"] == "C.UTF-8"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility,video"
    assert "LD_LIBRARY_PATH" not in variables


def test_the_labels_tell_what_is_in_the_image(
    containers: Containers, image: str, config: dict[str, Any], seen: dict[str, Any]
) -> None:
    """The base's CUDA and the wheels' CUDA are two things; each label is compared with what it is about."""
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == "pytorch-cuda"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == seen["image"]["version"]
    assert labels["org.opencontainers.image.base.name"] == seen["image"]["base"]
    assert labels["pytorch-cuda.variant"] == seen["image"]["variant"]
    code = "import torch; print(torch.__version__.partition('+')[0], torch.version.cuda)"
    torch_is, cuda = containers.run(image, "python", "-c", code).ok().out.split()
    assert (labels["pytorch-cuda.torch"], labels["pytorch-cuda.wheels.cuda"]) == (torch_is, cuda)
    found = containers.run(image, "sh", "-c", "ls -d /usr/local/cuda-*/ 2>/dev/null; true").ok().out
    base = ".".join(labels["pytorch-cuda.base.cuda"].split(".")[:2])
    assert found.strip() == (f"/usr/local/cuda-{base}/" if base else "")


def test_version_prints_the_same_facts(containers: Containers, image: str, seen: dict[str, Any]) -> None:
    done = containers.run(image, "--version").ok()
    for name, value in seen["image"].items():
        assert re.search(rf"{name}\b.*{re.escape(str(value))}" if name != "version" else re.escape(value), done.out)


def test_no_host_key_token_or_run_time_file_is_in_the_image(seen: dict[str, Any]) -> None:
    assert seen["host_keys"] == []
    assert seen["run"] == []
    assert seen["machine_id"] in ("", None)
    assert seen["roots_home"] == []


def test_no_layer_has_ever_held_a_secret(client: Any, image: str) -> None:
    """The history of the image, with every build argument and command in full."""
    history = " ".join(entry["CreatedBy"] for entry in client.images.get(image).history())
    assert not re.search(r"(?i)(token|password|secret)=\S", history), history
    assert not re.search(r"https?://[^/\s]*@", history), "a proxy's or an index's credentials"
    assert "BEGIN CERTIFICATE" not in history


def test_no_password_fits(seen: dict[str, Any]) -> None:
    """`*` fits none and leaves key logins open; `!` locks the account (field report B028)."""
    shadow = dict(seen["shadow"])
    assert shadow["user"] == "*"
    assert {password for password in shadow.values()} <= {"*", "!", "!!", "!*"}


def test_the_user_is_the_only_person(seen: dict[str, Any]) -> None:
    people = [line for line in seen["passwd"] if int(line[2]) >= 1000 and line[0] != "nobody"]
    assert [(line[0], line[2], line[3], line[5], line[6]) for line in people] == [
        ("user", "1000", "1000", "/home/user", "/bin/bash")
    ]
    for database in ("passwd", "group", "shadow"):
        assert re.search(rf"^{database}:\s*files extrausers$", seen["nsswitch"], re.MULTILINE)


def test_nothing_is_left_over_from_the_build(seen: dict[str, Any]) -> None:
    for what in ("temporary", "caches", "backups", "home"):
        assert seen[what] == [], what
    # Debian's own link to a text about logs.
    assert [path for path in seen["logs"] if path != "/var/log/README"] == []


def test_folders_have_the_promised_owners(seen: dict[str, Any]) -> None:
    for path in ("/opt/pytorch-cuda", "/opt/pytorch-cuda/lib", "/opt/pytorch-cuda/site", "/opt/pytorch-cuda/bin"):
        assert seen["modes"][path] == [0, 0, "0o755"], path
    for path in ("/workspace", "/workspace/code", "/home/user"):
        assert seen["modes"][path] == [1000, 0, "0o2775"], path
    assert seen["modes"]["/etc/pytorch-cuda/start.d"] == [0, 0, "0o755"]


def test_every_folder_and_file_of_the_environment_is_open_to_group_0(seen: dict[str, Any]) -> None:
    assert seen["odd"] == []


def test_no_program_ends_its_lines_as_windows_does(seen: dict[str, Any]) -> None:
    assert seen["cr"] == []


def test_the_wheels_are_those_of_the_lock(containers: Containers, image: str) -> None:
    installed = {tuple(pair) for pair in json.loads(containers.run(image, "python", "-I", "-c", WHEELS).ok().out)}
    locked = set(re.findall(r"^([a-z0-9.-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    assert len(locked) > 100
    # The CUDA build's local version (+cu126) is in the metadata of some builds and stands in no lock.
    plain = {(name, version.partition("+")[0]) for name, version in installed}
    assert plain - locked == set(), "installed and not locked"
    assert locked - plain == set(), "locked and not installed"


def test_the_data_set_is_the_real_one(containers: Containers, image: str) -> None:
    script = "cd /opt/datasets/fashion-mnist && sha256sum *; stat -c '%u %a' . *"
    said = containers.run(image, "sh", "-c", script).ok().out
    sums = dict(line.split()[::-1] for line in said.splitlines() if len(line) > 60)
    source = (ROOT / "pinfeed" / "data.py").read_text()
    expected = dict(re.findall(r'"([\w-]+-ubyte)": "([0-9a-f]{64})"', source))
    assert len(expected) == 4
    assert sums == expected
    assert set(said.splitlines()[4:]) == {"0 755", "0 644"}


@pytest.mark.parametrize("shell", ["-c", "-lc", "-ic"])
def test_the_tools_that_are_promised_are_found_by_every_kind_of_shell(
    containers: Containers, image: str, shell: str
) -> None:
    programs = "git tmux vim curl wget less htop rsync nvitop pip uv gcc g++ ps tensorboard jupyter pinfeed"
    script = f"for p in {programs}; do command -v $p >/dev/null || echo $p; done; command -v python"
    done = containers.run(image, "bash", shell, script).ok()
    assert done.out == "/opt/conda/envs/pytorch/bin/python\n"


def test_time_zone_and_language_are_honoured(containers: Containers, image: str) -> None:
    script = "date +%Z; locale charmap; python -c \"print('中文')\""
    said = containers.run(image, "sh", "-c", script, options=["--env", "TZ=Asia/Shanghai"]).ok().out
    assert said.split() == ["CST", "UTF-8", "中文"]


def test_a_plot_with_chinese_labels_has_its_glyphs(containers: Containers, image: str) -> None:
    code = "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as p; p.title('训练损失 −1');"
    code += "p.savefig('/tmp/plot.png'); print('drawn')"
    done = containers.run(image, "python", "-W", "error", "-c", code).ok()
    assert done.out == "drawn\n"
    assert "missing" not in done.err
