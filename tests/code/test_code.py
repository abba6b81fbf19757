"""VS Code in the browser: behind a login, with the image's environment, and stopped as cleanly as the rest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Optional

import pytest
import requests

from tests.support.chromium import chromium
from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders, owner
from tests.support.wait import until

pytestmark = pytest.mark.slow
PUBLISH = ("--publish", "127.0.0.1:0:8080")
SECRET = "Tr0ub4dor-and-3"
OWNER = (4321, 4322)


def start(containers: Containers, image: str, *options: str, **more: Any) -> tuple[Tracked, str]:
    """A container in the mode `code` that answers, and its address."""
    tracked = containers.start(image, "code", options=[*PUBLISH, *options], **more)
    url = f"http://127.0.0.1:{tracked.port(8080)}"
    wait_for_health(tracked, url)
    return tracked, url


def wait_for_health(tracked: Tracked, url: str) -> None:
    def probe() -> Optional[bool]:
        assert tracked.state["Running"], tracked.log()
        try:
            return get(f"{url}/healthz").ok
        except requests.RequestException:
            return None

    until("VS Code to answer", probe, tracked.log)


def get(url: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, timeout=10, allow_redirects=False)


def lets_in(url: str, password: str) -> bool:
    """Whether the login page takes the password: it answers with a redirect and a cookie."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.post(f"{url}/login", data={"password": password}, timeout=10, allow_redirects=False)
        return answer.status_code == 302 and bool(answer.cookies)


@pytest.fixture(scope="module")
def lab(code_image: str, folders: Folders, shared_containers: Containers) -> tuple[Tracked, str, Path]:
    """One container with a password from a file, whose work folder belongs to another uid."""
    folder = folders.new(OWNER)
    secret = folders.file(folders.missing("token"), SECRET + "\n", 0o644)
    options = [f"--volume={folder}:/workspace/code", f"--volume={secret}:/run/secrets/token:ro"]
    options += ["--env=CODE_TOKEN_FILE=/run/secrets/token", "--env=AWKWARD=a b'\"$c #d", "--env=PASSWORD=theirs"]
    tracked, url = start(shared_containers, code_image, *options)
    return tracked, url, folder


def test_nobody_gets_in_without_the_password(lab: tuple[Tracked, str, Path]) -> None:
    _, url, _ = lab
    answer = get(f"{url}/")
    assert answer.status_code == 302 and "login" in answer.headers["Location"]
    assert not lets_in(url, "theirs")  # a variable of the user's that code-server would have taken
    assert lets_in(url, SECRET)


def test_a_command_typed_in_its_terminal_runs_as_the_user(
    lab: tuple[Tracked, str, Path], shared_containers: Containers, browser_image: str
) -> None:
    _, url, folder = lab
    with chromium(shared_containers, browser_image) as browser:
        page = browser.new_context().new_page()
        page.goto(url)
        page.fill("input[type=password]", SECRET)
        page.press("input[type=password]", "Enter")
        page.wait_for_selector(".monaco-workbench", timeout=60_000)
        page.keyboard.press("Control+Backquote")
        page.wait_for_selector(".xterm-helper-textarea", state="attached", timeout=60_000)
        # The shell drops what is typed before its prompt is there, so the line is typed until it was heard.
        until("VS Code to answer", lambda: typed(page, folder), lambda: str(list(folder.iterdir())), pause=1)
    python, awkward, node, _ = (folder / "seen").read_text().split("\n")
    assert (python, awkward, node) == ("/opt/conda/envs/pytorch/bin/python", "a b'\"$c #d", "no node")
    assert owner(folder / "seen") == OWNER


def typed(page: Any, folder: Path) -> bool:
    page.locator(".xterm-helper-textarea").first.focus()
    page.keyboard.press("Control+c")
    page.keyboard.type('(which python; echo "$AWKWARD"; which node || echo no node) >code/new; mv code/new code/seen\n')
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not (folder / "seen").exists():
        page.wait_for_timeout(200)
    return (folder / "seen").exists()


def test_the_password_is_in_no_argument_environment_or_log(lab: tuple[Tracked, str, Path]) -> None:
    tracked, _, _ = lab
    seen = tracked.exec("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'", user="0").out
    assert "entry.js" in seen and SECRET not in seen
    assert SECRET not in tracked.log() and SECRET not in str(tracked.inspect())


def test_the_health_check_asks_it(lab: tuple[Tracked, str, Path]) -> None:
    tracked, _, _ = lab
    assert tracked.exec(*tracked.inspect()["Config"]["Healthcheck"]["Test"][1:]).ok().out == "healthy: code\n"


def test_the_password_is_made_once_printed_once_and_kept_over_a_restart(
    code_image: str, containers: Containers
) -> None:
    tracked, url = start(containers, code_image)
    password = tracked.wait_for_line(r"VS Code: http://127\.0\.0\.1:8080/   password: ([0-9a-f]{48})")[1]
    assert lets_in(url, password)
    seconds = tracked.stop()
    assert seconds < 2 and tracked.state["ExitCode"] in (0, 143)
    tracked.container.start()
    url = f"http://127.0.0.1:{tracked.port(8080)}"
    wait_for_health(tracked, url)
    assert lets_in(url, password)
    assert tracked.log().count(password) == 1


@pytest.mark.parametrize(
    "profile",
    [
        ("--user=12345:0",),
        ("--read-only", "--tmpfs=/run", "--tmpfs=/tmp"),
        ("--cap-drop=ALL",),
        ("--network=none",),
    ],
    ids=lambda profile: profile[0],
)
def test_it_answers_in_each_start_profile(code_image: str, containers: Containers, profile: tuple[str, ...]) -> None:
    tracked = containers.start(code_image, "code", options=profile, quiet=False)
    check = tracked.inspect()["Config"]["Healthcheck"]["Test"][1:]

    def probe() -> bool:
        assert tracked.state["Running"], tracked.log()
        return tracked.exec(*check).out == "healthy: code\n"

    until("VS Code to answer", probe, tracked.log, pause=0.5)
    assert tracked.stop() < 2


def test_an_image_without_it_names_the_variant_that_has_it(image: str, containers: Containers) -> None:
    done = containers.run(image, "code").ended(64)
    assert "pytorch-cuda:v2.7-code code" in done.err
