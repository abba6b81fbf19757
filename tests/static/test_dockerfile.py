"""What the Dockerfile promises, read from it: stages, downloads, accounts, layers, and facts that stand twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from entrypoint.settings import BY_NAME
from scripts import lock, names
from tests.static import dockerfile
from tests.static.test_guards import load

STAGES = dockerfile.stages()
DEFAULTS = dockerfile.defaults()
RUNTIME = dockerfile.chain("runtime", STAGES, DEFAULTS)
LOCK = (names.ROOT / "requirements" / "python-cu126.lock").read_text(encoding="utf-8")
ROOTS_PYTHON = [
    *("/bin/busybox", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"),
    *("/opt/pytorch-cuda/python", "-I", "-S"),
]

split_layers = load("scripts/build/split_layers.py")


def every(word: str) -> list[tuple[str, dockerfile.Instruction]]:
    """Instructions of one kind, each with its stage."""
    return [(stage.name, instruction) for stage in STAGES.values() for instruction in stage.all(word)]


def commands(stage: str) -> list[str]:
    """The shell's commands of a stage."""
    return [run.command() for run in STAGES[stage].all("RUN")]


# ---- the parser -----------------------------------------------------------------------------------------------------
def test_the_parser_leaves_comments_out_and_joins_lines() -> None:
    run = "RUN --mount=type=bind,target=/m \\\n  # why\n  a; \\\n  b\n"
    text = f"ARG A=1\n# no\nFROM x:${{A}} AS one\n{run}FROM one AS two\n"
    found = dockerfile.stages(text)
    assert [(stage.name, stage.parent) for stage in found.values()] == [("one", "x:${A}"), ("two", "one")]
    (seen,) = found["one"].all("RUN")
    assert seen.command().split() == ["a;", "b"] and seen.options() == {"mount": ["type=bind,target=/m"]}
    assert dockerfile.defaults(text) == {"A": "1"}
    assert [stage.name for stage in dockerfile.chain("two", found, {})] == ["one", "two"]


# ---- stages ---------------------------------------------------------------------------------------------------------
def test_the_stages_come_in_the_order_that_the_head_draws() -> None:
    product = [
        *("base", "system", "contract", "python-conda", "python-distribution", "python", "wheels"),
        *("dataset-upstream", "dataset-distribution", "dataset", "app", "thin", "runtime"),
    ]
    helpers = ["test", "checked", "glibc-check", "browser", "code-server", "code"]
    assert list(STAGES) == product + helpers


@pytest.mark.parametrize("python", ["conda", "distribution"])
def test_every_image_stands_on_the_named_base(python: str) -> None:
    values = {**DEFAULTS, "PYTHON_FROM": python}
    for name in STAGES:
        assert dockerfile.chain(name, STAGES, values)[0].name == "base", name
    assert STAGES["base"].parent == "${BASE}" and not STAGES["base"].instructions


def test_no_frontend_is_pulled() -> None:
    assert not re.search(r"(?im)^\s*#\s*syntax\s*=", dockerfile.TEXT)


def test_what_is_only_for_tests_is_not_in_the_product() -> None:
    for product in ("thin", "runtime", "code"):
        text = " ".join(i.rest for stage in dockerfile.chain(product, STAGES, DEFAULTS) for i in stage.instructions)
        assert "pytest" not in text and "test-image" not in text and "chromium" not in text


@pytest.mark.parametrize("name", [name for name, stage in STAGES.items() if stage.all("RUN")])
def test_a_failed_command_ends_its_step(name: str) -> None:
    shells = [i for stage in dockerfile.chain(name, STAGES, DEFAULTS) for i in stage.all("SHELL")]
    assert shells[-1].exec_form() == ["/bin/bash", "-euxo", "pipefail", "-c"]


# ---- downloads ------------------------------------------------------------------------------------------------------
def test_every_download_has_its_checksum() -> None:
    downloads = 0
    for stage, add in every("ADD"):
        values = {**DEFAULTS, **{a.rest.partition("=")[0]: a.rest.partition("=")[2] for a in STAGES[stage].all("ARG")}}
        values = {name: value or DEFAULTS[name] for name, value in values.items()}
        sources = [dockerfile.expand(source, values) for source in add.arguments()[:-1]]
        assert len(sources) == 1 and sources[0].startswith("https://"), "COPY is for files, and http has no lock"
        (checksum,) = add.options()["checksum"]
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", dockerfile.expand(checksum, values)), sources
        downloads += 1
    assert downloads == 5, "Miniforge and the four files of Fashion-MNIST"


def test_no_command_downloads_by_itself() -> None:
    for stage, run in every("RUN"):
        text = run.command()
        assert "://" not in text, stage
        assert not re.search(r"\|\s*(sudo\s+)?(ba|da)?sh\b", text), f"{stage}: a program from a pipe"
        assert not re.search(r"(?:^|[;&|(]\s*|\bdo\s+|\bthen\s+)(curl|wget|git\s+clone)\b", text), stage


def test_every_installation_of_packages_takes_hashes() -> None:
    """By pip and uv with --require-hashes; by npm from its lock; by apt from the distribution's signed lists."""
    for stage, run in every("RUN"):
        for command in re.split(r";|&&", run.command()):
            if re.search(r"\bpip\s+install\b", command):
                assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(command.split()), stage
            assert not re.search(r"\bnpm\s+(i|install|add)\b|\bnpx\b", command), stage
            if re.search(r"\bapt-get\s+install\b", command):
                assert "--no-install-recommends" in command and "--allow-unauthenticated" not in command, stage
    install = load("scripts/build/install_wheels.py")
    assert install.HASHED == ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    source = (names.ROOT / "scripts/build/install_wheels.py").read_text(encoding="utf-8")
    assert source.count('"install"') == source.count("*HASHED") == 2


def test_an_archive_holds_what_was_expected() -> None:
    """Whatever source Fashion-MNIST came from, the unpacked bytes are checked."""
    (check,) = [run for run in commands("dataset") if "sha256sum" in run]
    assert "sha256sum --check --strict" in check and len(re.findall(r"\b[0-9a-f]{64}\b", check)) == 4
    assert check.index("gunzip") < check.index("sha256sum") < check.index("install")


# ---- the system -----------------------------------------------------------------------------------------------------
def test_the_bases_cuda_lists_go_before_the_first_update() -> None:
    for name, stage in STAGES.items():
        if not any("apt-get update" in run for run in commands(name)) or name == "browser":
            continue  # test_bake.py: Chromium's image is made on the embedded base alone
        before = [run.command() for s in dockerfile.chain(name, STAGES, DEFAULTS) for run in s.all("RUN")]
        text = " ".join(before).partition("apt-get update")[0]
        for lists in ("/etc/apt/sources.list.d/cuda*.list", "/etc/apt/sources.list.d/nvidia*.list"):
            assert lists in text and "rm -f" in text, stage.name


def test_no_host_key_stays() -> None:
    run = STAGES["system"].run_with("openssh-server")
    assert run.index("rm -f /etc/ssh/ssh_host_*") > run.index("openssh-server")
    for stage, other in every("RUN"):
        assert "ssh-keygen" not in other.command(), stage
        assert stage == "system" or "openssh-server" not in other.command(), stage


def test_nothing_that_differs_between_two_builds_stays() -> None:
    run = STAGES["system"].run_with("openssh-server")
    for gone in (
        *("/var/lib/apt/lists/*", "/var/cache/apt/*", "/var/cache/debconf/*-old", "/var/lib/dpkg/*-old"),
        *("/var/cache/ldconfig/aux-cache", "/tmp/*", "find /var/log -type f -delete", ": >/etc/machine-id"),
    ):
        assert gone in run[run.index("apt-get clean") :], gone
    users = STAGES["system"].run_with("useradd")
    assert users.startswith("export SOURCE_DATE_EPOCH="), "shadow writes today's date else"
    for gone in ("passwd-", "group-", "shadow-", "gshadow-", "subuid-", "subgid-"):
        assert f"/etc/{gone}" in users[users.index("usermod") :], gone


def test_root_s_static_programs_are_installed_and_tried() -> None:
    run = STAGES["system"].run_with("openssh-server")
    assert {"tini", "busybox-static"} <= set(run.partition(";     rm -f /etc/ssh")[0].split())
    assert "/usr/bin/tini-static --version" in run and "/bin/busybox true" in run


FAKE_ACCOUNTS = r"""#!/bin/bash
# `passwd` and `group` in $STATE are the accounts: NAME:x:ID:...
case "${0##*/}" in
    getent) grep -E "^[^:]*:x:$2:" "$STATE/$1" || exit 2 ;;
    userdel)
        grep -q "^$2:" "$STATE/passwd" || exit 6
        sed -i "/^$2:/d" "$STATE/passwd"
        [ "$GROUP_GOES" = yes ] && sed -i "/^$2:/d" "$STATE/group"
        ;;
    groupdel) grep -q "^$1:" "$STATE/group" || exit 6; sed -i "/^$1:/d" "$STATE/group" ;;
esac
echo "${0##*/} $*" >>"$STATE/calls"
"""


@pytest.mark.parametrize(
    ("passwd", "group", "group_goes", "called"),
    [
        ("ubuntu:x:1000:1000::/home/ubuntu:/bin/sh\n", "ubuntu:x:1000:\n", "yes", ["userdel --remove ubuntu"]),
        ("bob:x:1000:9::/:/bin/sh\n", "bob:x:1000:\n", "no", ["userdel --remove bob", "groupdel bob"]),
        ("", "staff:x:1000:\n", "no", ["groupdel staff"]),
        ("", "", "no", []),
    ],
)
def test_an_account_that_has_uid_1000_goes_first(
    passwd: str, group: str, group_goes: str, called: list[str], tmp_path: Path
) -> None:
    """The lines of the Dockerfile themselves run, with made-up account programs on PATH."""
    run = STAGES["system"].run_with("useradd")
    lines = [part.strip() for part in re.findall(r"if .*?; fi;", run[: run.index("groupadd")])]
    assert len(lines) == 2
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name in ("getent", "userdel", "groupdel"):
        (fakes / name).write_text(FAKE_ACCOUNTS)
        (fakes / name).chmod(0o755)
    root = "root:x:0:0::/root:/bin/sh\n"
    (tmp_path / "passwd").write_text(root + passwd)
    (tmp_path / "group").write_text("root:x:0:\n" + group)
    (tmp_path / "calls").touch()
    environ = {"PATH": f"{fakes}:{os.environ['PATH']}", "STATE": str(tmp_path), "GROUP_GOES": group_goes}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if not call.startswith("getent")] == called
    assert (tmp_path / "passwd").read_text() == root and ":1000:" not in (tmp_path / "group").read_text()


def test_the_user_is_made_after_that_and_has_no_password() -> None:
    run = STAGES["system"].run_with("useradd")
    order = ["userdel", "groupdel", "groupadd --gid 1000 user", "useradd --uid 1000", "usermod --password '*' user"]
    assert [run.index(word) for word in order] == sorted(run.index(word) for word in order)
    made = re.search(r"useradd ([^;]*);", run)
    assert made and made[1].split() == [
        *("--uid", "1000", "--gid", "1000", "--groups", "0", "--no-create-home"),
        *("--home-dir", "/home/user", "--shell", "/bin/bash", "user"),
    ]


# ---- the contract ---------------------------------------------------------------------------------------------------
def test_root_s_programs_start_static_and_with_an_empty_environment() -> None:
    (entrypoint,) = STAGES["contract"].all("ENTRYPOINT")
    start = ["/usr/bin/tini-static", "-s", "--", *ROOTS_PYTHON, "/opt/pytorch-cuda/lib/start.py"]
    assert entrypoint.exec_form() == start
    (health,) = STAGES["contract"].all("HEALTHCHECK")
    assert health.exec_form() == [*ROOTS_PYTHON, "/opt/pytorch-cuda/lib/healthcheck.py"]
    assert [stage for word in ("ENTRYPOINT", "HEALTHCHECK", "CMD") for stage, _ in every(word)] == ["contract"] * 3
    assert STAGES["contract"].all("CMD")[0].exec_form() == []
    assert not every("USER"), "the entrypoint drops root"


def test_no_cuda_folder_is_put_before_the_wheels_own() -> None:
    for stage, env in every("ENV"):
        assert "LD_LIBRARY_PATH" not in env.pairs() and "LD_PRELOAD" not in env.pairs(), stage
    path = STAGES["contract"].all("ENV")[0].pairs()["PATH"].split(":")
    assert path[:3] == ["/opt/pytorch-cuda/bin", "/opt/conda/envs/pytorch/bin", "/opt/conda/bin"]


def test_the_ports_are_the_defaults_of_the_settings() -> None:
    ports = [BY_NAME[name].default for name in ("JUPYTER_PORT", "SSH_PORT", "CODE_PORT")]
    exposed = {stage: [int(port) for port in expose.rest.split()] for stage, expose in every("EXPOSE")}
    assert exposed == {"contract": ports[:2], "code": ports[2:]}


# ---- layers ---------------------------------------------------------------------------------------------------------
def test_the_layers_are_those_that_the_build_step_makes() -> None:
    copied = [copy.rest for copy in STAGES["runtime"].all("COPY") if "/layers/" in copy.rest]
    found = [re.fullmatch(r"--link --from=wheels /layers/([a-z]+)/ /", rest) for rest in copied]
    assert all(found), copied
    layers = [match[1] for match in found if match]
    assert sorted(layers) == sorted([*split_layers.IN_SITE_PACKAGES, "conda", "packages"])


def test_every_big_folder_is_linked_and_our_code_comes_last() -> None:
    for stage in ("thin", "runtime", "code"):
        copies = STAGES[stage].all("COPY")
        assert all("link" in copy.options() and copy.options().get("from") for copy in copies), stage
    assert STAGES["runtime"].all("COPY")[-1].rest == "--link --from=app /layer/ /"
    assert not [c for name in ("system", "contract", "wheels") for c in STAGES[name].all("COPY")]


def test_no_later_step_writes_big_folders_again() -> None:
    for name in ("contract", "thin", "runtime", "code"):
        for run in commands(name):
            assert not re.search(r"ch(own|mod|grp)\s+(-\S+\s+)*-\w*R", run), name


# ---- facts that stand twice -----------------------------------------------------------------------------------------
def pins(text: str) -> dict[str, str]:
    """Name -> version of `name==version` lines."""
    return dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;]+)", text))


def test_torch_is_the_one_that_is_asked_for_and_locked() -> None:
    asked = pins((names.ROOT / "requirements" / "python.in").read_text(encoding="utf-8"))
    locked = pins(LOCK)
    assert DEFAULTS["TORCH"] == asked["torch"] == locked["torch"]
    assert {name: locked[name] for name in asked} == asked
    # The sets that PyTorch published together.
    assert (asked["torch"], asked["torchvision"], asked["torchaudio"]) == ("2.7.1", "0.22.1", "2.7.1")
    assert (locked["triton"], locked["nvidia-cudnn-cu12"], locked["nvidia-nccl-cu12"]) == (
        *("3.3.1", "9.5.1.17", "2.26.2"),
    )


def test_the_wheels_cuda_is_the_locks() -> None:
    major, minor, *_ = pins(LOCK)["nvidia-cuda-runtime-cu12"].split(".")
    assert DEFAULTS["WHEEL_CUDA"] == f"{major}.{minor}"
    assert DEFAULTS["LOCK"] == f"python-cu{major}{minor}.lock"
    assert (names.ROOT / "requirements" / DEFAULTS["LOCK"]).is_file()


def test_the_base_is_named_alike_everywhere() -> None:
    base = "nvidia/cuda:12.1.1-runtime-ubuntu20.04"
    assert DEFAULTS["BASE"] == base and DEFAULTS["BASE_CUDA"] == base.split(":")[1].split("-")[0]
    assert DEFAULTS["BASE_NAME"] == base
    sources = json.loads((names.ROOT / "requirements" / "sources.json").read_text(encoding="utf-8"))
    assert base in sources["base_registry"]["used_for"]
    for readme in ("README.md", "README.zh-CN.md"):
        assert base in (names.ROOT / readme).read_text(encoding="utf-8"), readme


def test_miniforge_is_one_version_with_its_checksum() -> None:
    (add,) = STAGES["python-conda"].all("ADD")
    assert add.options()["checksum"] == ["sha256:${MINIFORGE_SHA256}"]
    version = "26.3.2-3"
    assert DEFAULTS["MINIFORGE_VERSION"] == version
    assert DEFAULTS["MINIFORGE_SHA256"] == "848194851a98903134187fbb4ab50efe87b003e0c0f808f97644b7524a62bf2c"
    home = "https://github.com/conda-forge/miniforge/releases/download"
    assert dockerfile.expand(add.arguments()[0], DEFAULTS) == f"{home}/{version}/Miniforge3-{version}-Linux-x86_64.sh"


def test_python_is_the_version_that_the_locks_are_for() -> None:
    major, minor = lock.PYTHON
    conda = STAGES["python-conda"].run_with("conda create")
    assert f" python={major}.{minor} " in conda and f"sys.version_info[:2] == ({major}, {minor})" in conda
    pinned = (names.ROOT / "scripts/build/conda/pinned").read_text(encoding="utf-8")
    assert pinned.startswith(f"python {major}.{minor}.*\n")


def test_the_version_is_one() -> None:
    bake = (names.ROOT / "docker-bake.hcl").read_text(encoding="utf-8")
    assert f'variable "IMAGE" {{ default = "{names.REPOSITORY}:{names.VERSION}" }}' in bake
    labels = STAGES["runtime"].all("LABEL")[0].pairs()
    assert labels["org.opencontainers.image.version"] == names.VERSION
    assert f'"version": "{names.VERSION}"' in STAGES["runtime"].run_with("image.json")
    assert DEFAULTS["TORCH"].startswith(names.VERSION.lstrip("v") + ".")


def test_the_labels_tell_the_two_cudas_apart() -> None:
    labels = STAGES["runtime"].all("LABEL")[0].pairs()
    assert labels["pytorch-cuda.base.cuda"] == "${BASE_CUDA}" and labels["pytorch-cuda.wheels.cuda"] == "${WHEEL_CUDA}"
    assert labels["pytorch-cuda.torch"] == "${TORCH}" and labels["pytorch-cuda.variant"] == "${VARIANT}"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_image_json_holds_what_the_labels_say() -> None:
    """The RUN itself writes it, into a folder of ours."""
    run = STAGES["runtime"].run_with("image.json")
    values = {"VARIANT": "x", "BASE_NAME": "a base", "BASE_CUDA": "1.2", "WHEEL_CUDA": "3.4", "TORCH": "5.6"}
    command = run.partition(">/opt/pytorch-cuda/image.json")[0]
    done = subprocess.run(["bash", "-euc", command], env={**os.environ, **values}, capture_output=True, check=True)
    assert json.loads(done.stdout) == {
        **{"version": names.VERSION, "variant": "x", "base": "a base"},
        **{"base_cuda": "1.2", "wheel_cuda": "3.4", "torch": "5.6"},
    }


def test_the_build_s_time_is_fixed_and_old() -> None:
    assert DEFAULTS["SOURCE_DATE_EPOCH"] == names.source_date_epoch()
    assert int(names.source_date_epoch()) < (names.ROOT / "Dockerfile").stat().st_mtime, "a newer time is not clamped"
