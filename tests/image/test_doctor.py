"""doctor in real containers: in every start profile, by root, and with faults that an engine can make."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.image.test_trust import BUILD, LIBRARY, LURE_OPTIONS, PLANT, PROGRAM, PYTHON_START, marks
from tests.support.containers import Containers
from tests.support.diagnosis import Finding, findings, troubles
from tests.support.folders import Folders
from tests.support.lab import Lab
from tests.support.profiles import PROFILES, Profile

ON_THE_CPU = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
ENOUGH_SHM = ("--shm-size", "2g")
FAKE_DRIVER = Path(__file__).resolve().parents[1] / "doctor" / "fake_driver.c"
# What each profile has by its nature, besides the GPU that is missing here and Docker's 64 MiB of /dev/shm.
BY_NATURE = {
    "root-no-capabilities": {"environment-files"},
    "read-only": {"tmp", "environment-files", "workspace"},
    "user-N-N": {"environment-files", "workspace", "home"},
    "network-none": {"host-name"},
}


def look(containers: Containers, image: str, *options: str, deep: bool = False) -> dict[str, Finding]:
    words = ("doctor", "--json", *(["--deep"] if deep else []))
    budget = "a program that loads torch" if deep else "a command"
    return findings(containers.run(image, *words, options=options, budget=budget))


def trouble(found: dict[str, Finding], name: str, status: str, seen: str, remedy: str) -> None:
    finding = found[name]
    assert finding["status"] == status, finding
    assert seen in finding["seen"] and remedy in finding["remedy"], finding


def test_without_a_gpu_that_is_the_one_thing_that_fails(containers: Containers, image: str) -> None:
    done = containers.run(image, "doctor", "--json", options=ENOUGH_SHM)
    found = findings(done)
    assert done.err == ""
    if found["gpu"]["status"] == "ok":
        pytest.skip("this engine gives a GPU to every container")
    assert troubles(found) == {"gpu": "fail"}, found
    assert {name for name, one in found.items() if "see gpu" in one["seen"]} == {
        "driver",
        "gpu-architecture",
        "nvml",
        "video-engines",
        "mig",
    }
    assert done.seconds < 5 + 3, "doctor takes 5 s at the most, a container's start about one"


def test_who_wants_no_gpu_is_well(containers: Containers, image: str) -> None:
    done = containers.run(image, "doctor", options=[*ON_THE_CPU, *ENOUGH_SHM]).ok()
    assert " ok, 0 warn, 0 fail, " in done.out.splitlines()[-1], done
    assert done.out.startswith("pytorch-cuda:v2.7, variant ")


@pytest.mark.slow
def test_deeply_too_all_is_well(containers: Containers, image: str) -> None:
    found = look(containers, image, *ON_THE_CPU, *ENOUGH_SHM, deep=True)
    assert troubles(found) == {}, found
    assert found["torch-import"]["seen"].startswith("torch 2.7.1+cu126, CUDA 12.6, cuDNN 90501")
    assert found["pip-check"]["status"] == found["all-reduce"]["status"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_every_profile_is_looked_at_and_only_what_is_true_is_said(
    containers: Containers, thin: str, profile: Profile
) -> None:
    found = look(containers, thin, *profile.options)
    allowed = {"gpu", "shm"}.union(*(names for key, names in BY_NATURE.items() if key in profile.name))
    assert set(troubles(found)) <= allowed, found
    assert str(profile.uid) in found["identity"]["seen"], found["identity"]


@pytest.mark.slow
def test_by_docker_exec_root_sees_what_the_user_would_meet(containers: Containers, image: str) -> None:
    publish = ("--publish", "127.0.0.1::8888", "--env", "JUPYTER_TOKEN=geheim-4711", "--env", "PUID=4321")
    container = containers.start(image, options=[*publish, *ENOUGH_SHM, *ON_THE_CPU])
    Lab.of(container, token="geheim-4711")
    done = container.exec("doctor", "--json", user="0")
    found = findings(done)
    assert troubles(found) == {}, found
    assert found["identity"]["seen"].startswith("user: uid 4321"), found["identity"]
    assert found["ports"]["seen"] == "jupyter answers"
    assert "geheim" not in done.out + done.err
    text = container.exec("doctor").ok()
    assert "geheim" not in text.out + text.err


@pytest.mark.slow
def test_a_service_that_died_is_named(containers: Containers, image: str) -> None:
    """The list that the start wrote, and nobody listening: the thin image has no JupyterLab that could be killed."""
    container = containers.start(image, "sleep", "600", quiet=False)
    container.wait_for_process("sleep")
    services = '{"version": 1, "services": [{"name": "sshd", "probe": "banner", "port": 22}]}'
    container.exec("sh", "-c", f"echo '{services}' > /run/pytorch-cuda/services.json", user="0").ok()
    found = findings(container.exec("doctor", "--json"))
    trouble(found, "ports", "fail", "sshd does not answer: port 22", "docker logs")
    trouble(found, "ssh-keys", "fail", "no public key may log in", "SSH_PUBLIC_KEY")


@pytest.mark.slow
@pytest.mark.parametrize("names", [["libz.so.1", "libm.so.6", "libtrap.so"], ["libc.so.6"]])
def test_as_root_doctor_loads_no_library_of_the_users(containers: Containers, thin: str, names: list[str]) -> None:
    container = containers.start(thin, "/bin/busybox", "sleep", "600", options=LURE_OPTIONS, quiet=False)
    container.wait_for_process("sleep")
    plain = ["/bin/busybox", "env", "-i", "PATH=/usr/bin:/bin"]
    container.exec(*plain, "sh", "-c", BUILD, "sh", *names, user="user", stdin=LIBRARY.encode()).ok()
    findings(container.exec("/opt/pytorch-cuda/bin/doctor", "--json", user="0"))
    assert "library-0" not in marks(container)


@pytest.mark.slow
def test_as_root_doctor_runs_no_program_of_the_users(containers: Containers, thin: str) -> None:
    container = containers.start(thin, "/bin/busybox", "sleep", "600", quiet=False)
    container.wait_for_process("sleep")
    plant = ["env", f"PYTHON_START={PYTHON_START}", "/bin/busybox", "sh", "-c", PLANT]
    container.exec(*plant, user="user", stdin=PROGRAM.encode()).ok()
    findings(container.exec("/opt/pytorch-cuda/bin/doctor", "--json", "--deep", user="0"))
    seen = marks(container)
    assert "python-1000" in seen, "the trap is no trap"
    assert [mark for mark in seen if not mark.endswith("-1000")] == []


FAULTS = {
    "tiny shm": (("--shm-size", "1m"), "shm", "warn", "/dev/shm has 1 MiB", "--shm-size=8g"),
    "few files": (("--ulimit", "nofile=256:256"), "open-files", "warn", "256", "--ulimit nofile=65536"),
    "little memory": (("--memory", "1g"), "memory", "warn", "1 GiB", "--memory=16g"),
    "few processes": (("--pids-limit", "100"), "processes", "warn", "of 100 processes", "--pids-limit=-1"),
    "noexec tmp": (("--tmpfs", "/tmp"), "tmp", "warn", "/tmp is mounted noexec", "--tmpfs /tmp:exec"),
    "no network": (("--network", "none", "--hostname", "nosuch"), "host-name", "warn", "nosuch", "--local-addr"),
    "gloo": (("--env", "GLOO_SOCKET_IFNAME=^lo"), "interfaces", "fail", "GLOO_SOCKET_IFNAME=^lo", "=eth0"),
    "time zone": (("--env", "TZ=Asia/Shanghay"), "clock", "warn", "TZ=Asia/Shanghay", "TZ=Asia/Shanghai"),
    "read-only work": (("--tmpfs", "/workspace:ro"), "workspace", "warn", "/workspace is read-only", "without :ro"),
    "full disk": (("--tmpfs", "/workspace:size=50m,uid=1000"), "disk", "fail", "/workspace: 50 MiB free", "system df"),
    "threads": (("--cpus", "1", "--env", "OMP_NUM_THREADS=64"), "cpu", "warn", "start 64 threads", "OMP_NUM_THREADS=1"),
    "wrong node": (("--device", "/dev/null:/dev/nvidia0"), "gpu", "fail", "libcuda.so.1", "not --device /dev/nvidia0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_the_engine_makes_is_found(containers: Containers, thin: str, fault: str) -> None:
    options, *wanted = FAULTS[fault]
    trouble(look(containers, thin, *options), *wanted)


@pytest.mark.slow
def test_a_work_folder_of_somebody_elses_is_found(containers: Containers, thin: str, folders: Folders) -> None:
    folder = folders.new(owner=(4321, 4321))
    (folder / "x").touch() if os.geteuid() == 0 else None
    found = look(containers, thin, "--volume", f"{folder}:/workspace/code", "--env", "PUID=1234")
    trouble(found, "workspace", "fail", "/workspace/code: permission denied; you are uid 1234", "PUID=$(id -u)")


@pytest.fixture(scope="module")
def fake_driver(folders: Folders, request: pytest.FixtureRequest) -> Path:
    """A folder with a libcuda that answers as it is told, built with the image's own compiler."""
    folder = folders.new(mode=0o777)
    build = "gcc -shared -fPIC -o /out/libcuda.so.1 -x c - && cp /out/libcuda.so.1 /out/libnvidia-ml.so.1"
    image = str(request.config.getoption("--thin"))
    command = ["docker", "run", "--rm", "--interactive", "--volume", f"{folder}:/out", image, "sh", "-c", build]
    subprocess.run(command, input=FAKE_DRIVER.read_bytes(), check=True, timeout=60)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "name", "status", "seen", "remedy"),
    [
        ("CUDA_FAKE_INIT=804", "gpu", "fail", "804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "compat"),
        ("CUDA_FAKE_INIT=803", "gpu", "fail", "803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"),
        ("CUDA_FAKE_HANG=cuInit", "gpu", "fail", "no answer in 15 s (cuInit)", "reboot"),
        ("CUDA_FAKE_VERSION=11040", "driver", "fail", "is of CUDA 11.4; torch was built with 12.6", "525.60.13"),
        ("CUDA_FAKE_MAJOR=12", "gpu-architecture", "fail", "is sm_120", "cu128"),
        ("CUDA_FAKE_NVML=999", "nvml", "warn", "nvmlInit: 999", "docker restart"),
        ("CUDA_FAKE_COUNT=1", "video-engines", "warn", "libnvcuvid.so.1 cannot be loaded", "compute,utility,video"),
    ],
)
def test_a_driver_that_does_not_work_is_found(
    containers: Containers, image: str, fake_driver: Path, told: str, name: str, status: str, seen: str, remedy: str
) -> None:
    options = ["--device", "/dev/null:/dev/nvidia0", "--volume", f"{fake_driver}:/fake:ro"]
    options += ["--env", "LD_LIBRARY_PATH=/fake", "--env", told]
    trouble(look(containers, image, *options), name, status, seen, remedy)


@pytest.mark.slow
def test_a_torch_that_was_replaced_is_found(containers: Containers, image: str) -> None:
    script = """
        set -eu
        site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        sed -i 's/^Version: 2.7.1.*/Version: 2.5.1/' $site/torch-2.7.1.dist-info/METADATA
        doctor --json
    """
    found = findings(containers.run(image, "bash", "-c", script, options=ENOUGH_SHM))
    trouble(found, "locked-packages", "fail", "torch 2.5.1 (locked: 2.7.1)", "torch==2.7.1")


@pytest.mark.slow
def test_what_root_installed_is_found(containers: Containers, image: str) -> None:
    container = containers.start(image, "sleep", "600")
    container.wait_for_process("sleep")
    site = "$(echo /opt/conda/envs/pytorch/lib/python3*/site-packages)"
    container.exec("sh", "-c", f"umask 022; mkdir {site}/roots.dist-info", user="0").ok()
    found = findings(container.exec("doctor", "--json"))
    trouble(found, "environment-files", "warn", "roots.dist-info cannot be changed by uid 1000", "chmod -R g=u")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["doctor | head -n 1", "doctor >&-; true", "LC_ALL=zh_CN.GBK doctor >/dev/null; true"])
def test_an_odd_reader_is_no_error(containers: Containers, thin: str, how: str) -> None:
    assert containers.run(thin, "sh", "-c", how).ok().err == ""


@pytest.mark.slow
def test_it_runs_from_a_notebooks_python_too(containers: Containers, image: str) -> None:
    """`!doctor` is the program; `python -m doctor` the module in the environment's own Python."""
    done = containers.run(image, "python", "-m", "doctor", "--json", options=[*ON_THE_CPU, *ENOUGH_SHM])
    assert troubles(findings(done)) == {}


@pytest.mark.slow
def test_fix_mends_and_says_so(containers: Containers, thin: str) -> None:
    done = containers.run(thin, "sh", "-c", "rm -rf ~/.config; doctor --fix >/dev/null; ls -d ~/.config").ok()
    assert done.out == "/home/user/.config\n"
    assert "doctor: made /home/user/.config" in done.err
