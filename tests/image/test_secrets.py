"""How one logs in, and that no secret is seen where it need not be: arguments, logs, `docker inspect`, a kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders
from tests.support.lab import REFUSALS, Lab, printed_token

SECRET = "a-Secret_Text.that:stands-nowhere~else"
PUBLISH = ("--publish", "127.0.0.1::8888")
NO_LOGIN = r"warning: JUPYTER_AUTH=none: whoever reaches port 8888 can run programs here, without a login"


def secret_file(folders: Folders, mode: int = 0o400, owner: tuple[int, int] = (0, 0)) -> Path:
    """As an engine's secret store mounts it: root's, closed to all others."""
    return folders.file(folders.new() / "token", f"{SECRET}\n", mode, owner)


def seen_in_processes(container: Tracked, secret: str) -> str:
    """Which processes show the secret in their arguments or environment. It comes by stdin: grep is one of them."""
    look = "grep -l -F -f /dev/stdin /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true"
    text = container.exec("sh", "-c", look, stdin=secret.encode()).ok().out
    return "\n".join(line for line in text.splitlines() if "/proc/1/environ" not in line)


def test_a_token_by_file_opens_the_door_and_stands_nowhere(
    containers: Containers, image: str, folders: Folders
) -> None:
    path = secret_file(folders)
    options = ["--volume", f"{path}:/run/secrets/token:ro", "--env", "JUPYTER_TOKEN_FILE=/run/secrets/token"]
    container = containers.start(image, options=[*options, *PUBLISH], expect=REFUSALS)
    lab = Lab.of(container, SECRET)
    assert lab.lets_in()
    assert not Lab(lab.url).lets_in()
    assert not Lab(lab.url, "another").lets_in()
    kernel = lab.run("import os; print(dict(os.environ)); print(open('/proc/self/cmdline').read())")
    assert SECRET not in kernel
    assert "JUPYTER_TOKEN" not in kernel
    assert SECRET not in container.log()
    assert "token=" not in container.log()
    assert SECRET not in json.dumps(container.inspect())
    assert SECRET not in container.exec("cat", "/proc/1/environ").ok().out
    assert seen_in_processes(container, SECRET) == ""


def test_a_token_by_variable_stands_in_no_argument_log_or_kernel(containers: Containers, image: str) -> None:
    container = containers.start(image, options=["--env", f"JUPYTER_TOKEN={SECRET}", *PUBLISH])
    lab = Lab.of(container, SECRET)
    assert lab.lets_in()
    assert SECRET not in lab.run("import os; print(dict(os.environ))")
    assert SECRET not in container.log()
    arguments = container.container.top(ps_args="-eo pid,args")["Processes"]
    assert SECRET not in str(arguments)


def test_a_secret_as_kubernetes_mounts_it_is_read(containers: Containers, image: str, folders: Folders) -> None:
    """token -> ..data/token, ..data -> ..2026_12_01, all of it root's."""
    folder = folders.new((0, 0))
    inner = folder / "..2026_12_01"
    inner.mkdir(mode=0o755)
    folders.file(inner / "token", SECRET, 0o400, (0, 0))
    (folder / "..data").symlink_to(inner.name)
    (folder / "token").symlink_to("..data/token")
    options = ["--volume", f"{folder}:/run/secrets:ro", "--env", "JUPYTER_TOKEN_FILE=/run/secrets/token"]
    assert Lab.of(containers.start(image, options=[*options, *PUBLISH]), SECRET).lets_in()


@pytest.mark.parametrize("profile", [(), ("--user", "12345:0"), ("--user", "12345:12345"), ("--cap-drop", "ALL")])
def test_a_made_token_is_printed_once_kept_over_a_restart_and_closed_to_others(
    containers: Containers, image: str, profile: tuple[str, ...]
) -> None:
    container = containers.start(image, options=[*profile, *PUBLISH], quiet=False)
    lab = Lab.of(container)
    assert re.fullmatch(r"[0-9a-f]{48}", lab.token)
    assert lab.lets_in()
    assert not Lab(lab.url).lets_in()
    container.restart()
    again = Lab.of(container, lab.token)
    assert again.lets_in()
    assert container.log(stdout=False).count(lab.token) == 1
    assert container.log(stderr=False) == ""
    folder = "/run/pytorch-cuda" if "--user" not in profile else "/tmp/pytorch-cuda-12345"
    assert container.exec("cat", f"{folder}/token").ok().out.strip() == lab.token
    uid = container.exec("stat", "-c", "%u", f"{folder}/token").ok().out.strip()
    assert uid == {(): "1000", ("--cap-drop", "ALL"): "0"}.get(profile, "12345")
    closed = f"cd {folder}; stat -c %a token jupyter/jupyter_server_config.json"
    assert container.exec("sh", "-c", closed).ok().out.split() == ["600", "600"]
    assert seen_in_processes(container, lab.token) == ""


def test_two_containers_have_two_tokens(containers: Containers, image: str) -> None:
    first, second = (printed_token(containers.start(image)) for _ in range(2))
    assert first != second


def test_a_password_hash_lets_its_password_in(containers: Containers, image: str) -> None:
    make = "from jupyter_server.auth import passwd; print(passwd('correct horse'))"
    hashed = containers.run(image, "python", "-c", make, budget="a program that loads torch").ok().out.strip()
    options = ["--env", f"JUPYTER_PASSWORD_HASH={hashed}", *PUBLISH]
    container = containers.start(image, options=options, expect=[*REFUSALS, " 401 POST /login "])
    lab = Lab(f"http://127.0.0.1:{container.port(8888)}/", "", container)
    lab.wait()
    assert not lab.lets_in()
    assert log_in(lab, "wrong horse") == 401
    assert log_in(lab, "correct horse") == 302
    assert lab.lets_in()
    assert hashed not in container.log()
    assert "token=" not in container.log()


def log_in(lab: Lab, password: str) -> int:
    xsrf = re.search(r'name="_xsrf" value="([^"]+)"', lab.ask("login").text)
    assert xsrf
    return lab.ask("login", "POST", data={"password": password, "_xsrf": xsrf[1]}).status_code


def test_no_login_only_by_the_word_none_and_with_a_warning_at_each_start(containers: Containers, image: str) -> None:
    options = ["--env", "JUPYTER_AUTH=none", *PUBLISH]
    container = containers.start(image, options=options, expect=[NO_LOGIN, "authentication is disabled"])
    assert Lab.of(container, "").lets_in()
    container.restart()
    assert Lab.of(container, "").lets_in()
    assert len(re.findall(NO_LOGIN, container.log())) == 2


def test_jupyters_own_token_option_is_taken(containers: Containers, image: str) -> None:
    container = containers.start(image, "jupyter", f"--IdentityProvider.token={SECRET}", options=PUBLISH)
    assert Lab.of(container, SECRET).lets_in()
    assert SECRET not in container.log()
