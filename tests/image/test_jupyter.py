"""JupyterLab in the image: where it answers, over what, in which languages, with which extensions."""

from __future__ import annotations

import pytest
import requests

from tests.support.certificate import make_certificate
from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders
from tests.support.lab import Lab
from tests.support.wait import until

PUBLISH = ("--publish", "127.0.0.1::8888")
QUICK_HEALTH = ("--health-interval", "1s", "--health-start-period", "0s")


def wait_for_health(container: Tracked, wanted: str) -> None:
    until(
        "the health to change",
        lambda: container.state["Health"]["Status"] == wanted or None,
        lambda: f"{container.state['Health']}\n{container.log()}",
    )


@pytest.fixture(scope="module")
def lab(shared_containers: Containers, image: str) -> Lab:
    """One server for the tests that only ask."""
    return Lab.of(shared_containers.start(image, options=PUBLISH))


def test_the_root_folder_is_the_workspace(lab: Lab) -> None:
    assert [entry["name"] for entry in lab.get("api/contents")["content"]] == ["code"]


def test_the_versions_are_those_of_the_article(lab: Lab) -> None:
    code = "import sys, torch, torchvision, torchaudio; print(sys.version_info[:2]);"
    code += "print(torch.__version__, torchvision.__version__, torchaudio.__version__, torch.version.cuda)"
    assert lab.run(code) == "(3, 13)\n2.7.1+cu126 0.22.1+cu126 2.7.1+cu126 12.6\n"


def test_there_is_one_kernel_and_it_is_the_environments(lab: Lab) -> None:
    specs = lab.get("api/kernelspecs")["kernelspecs"]
    assert list(specs) == ["python3"]
    assert lab.run("import sys; print(sys.prefix)") == "/opt/conda/envs/pytorch\n"


def test_the_extensions_people_expect_are_there(lab: Lab) -> None:
    names = {entry["name"]: entry for entry in lab.get("lab/api/extensions")}
    for wanted in (
        "jupyterlab-nvdashboard",
        "jupyter-server-resource-usage",
        "jupyter-widgets-jupyterlab-manager",
        "jupyterhub-jupyter-server-proxy",
    ):
        assert names.get(wanted, {}).get("enabled"), f"{wanted} is not among {sorted(names)}"


def test_the_chinese_language_pack_is_there(lab: Lab) -> None:
    assert "zh_CN" in lab.get("lab/api/translations/")["data"]
    words = lab.get("lab/api/translations/zh_CN")["data"]
    assert any("文件" in str(value) for value in words["jupyterlab"].values())


def test_the_news_question_is_not_asked(lab: Lab) -> None:
    """JupyterLab would ask a third party for news; the first thing a user saw was a question about it."""
    page = lab.ask("lab").text
    assert "@jupyterlab/apputils-extension:announcements" in page.partition("disabledExtensions")[2][:400]


def test_tensorboard_is_reached_through_the_same_port(lab: Lab) -> None:
    until("JupyterLab to answer", lambda: lab.ask("tensorboard/").ok or None, lambda: lab.ask("tensorboard/").text)
    assert "<title>TensorBoard</title>" in lab.ask("tensorboard/").text


def test_resource_usage_answers(lab: Lab) -> None:
    assert lab.get("api/metrics/v1")["rss"] > 0


def test_a_file_saved_in_the_work_folder_is_the_folders_owners(
    containers: Containers, image: str, folders: Folders
) -> None:
    work = folders.new((4321, 4321))
    lab = Lab.of(containers.start(image, options=[*PUBLISH, "--volume", f"{work}:/workspace/code"]))
    lab.write("code/note.txt", "written")
    seen = (work / "note.txt").stat()
    assert (seen.st_uid, seen.st_gid) == (4321, 4321)
    assert (work / "note.txt").read_text() == "written"


def test_another_port_and_base_url(containers: Containers, image: str) -> None:
    options = ["--env", "JUPYTER_PORT=9999", "--env", "JUPYTER_BASE_URL=lab1", *QUICK_HEALTH]
    container = containers.start(image, options=[*options, "--publish", "127.0.0.1::9999"])
    lab = Lab.of(container, base="/lab1/", port=9999)
    assert lab.lets_in()
    container.wait_for_line(r"JupyterLab: http://127.0.0.1:9999/lab1/lab\?token=[0-9a-f]{48}\n")
    wait_for_health(container, "healthy")


def test_options_of_jupyters_own(containers: Containers, image: str) -> None:
    container = containers.start(
        image,
        *("jupyter", "--ServerApp.port=9998", "--ServerApp.base_url=/mine/"),
        options=["--publish", "127.0.0.1::9998", *QUICK_HEALTH],
    )
    assert Lab.of(container, base="/mine/", port=9998).lets_in()
    wait_for_health(container, "healthy")


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")  # that it is the right one is asked below
@pytest.mark.parametrize("profile", [(), ("--user", "12345:0")])
def test_https_with_a_certificate_of_the_users(
    containers: Containers, image: str, folders: Folders, profile: tuple[str, ...]
) -> None:
    folder = folders.new()
    cert, _ = make_certificate(folder)
    options = [*profile, *PUBLISH, *QUICK_HEALTH, "--volume", f"{folder}:/run/secrets:ro"]
    options += ["--env", "JUPYTER_CERT_FILE=/run/secrets/cert.pem", "--env", "JUPYTER_KEY_FILE=/run/secrets/key.pem"]
    container = containers.start(image, options=options)
    lab = Lab.of(container, scheme="https")
    assert lab.lets_in()
    container.wait_for_line("JupyterLab: https://127.0.0.1:8888/lab")
    answer = requests.get(f"https://localhost:{container.port(8888)}/api", verify=str(cert), timeout=10)
    assert answer.ok
    wait_for_health(container, "healthy")


def test_a_key_that_belongs_to_another_certificate_is_named(
    containers: Containers, image: str, folders: Folders
) -> None:
    first, second = folders.new(), folders.new()
    make_certificate(first)
    _, other_key = make_certificate(second)
    mounts = ["--volume", f"{first}/cert.pem:/c.pem:ro", "--volume", f"{other_key}:/k.pem:ro"]
    variables = ["--env", "JUPYTER_CERT_FILE=/c.pem", "--env", "JUPYTER_KEY_FILE=/k.pem"]
    done = containers.run(image, options=[*mounts, *variables]).ended(64)
    assert "KEY_VALUES_MISMATCH" in done.err


def test_a_server_that_hangs_is_unhealthy(containers: Containers, image: str) -> None:
    container = containers.start(image, options=[*PUBLISH, *QUICK_HEALTH, "--health-retries", "1"], quiet=False)
    Lab.of(container)
    wait_for_health(container, "healthy")
    container.exec("pkill", "-STOP", "-f", "jupyter-lab").ok()
    wait_for_health(container, "unhealthy")
    container.exec("pkill", "-CONT", "-f", "jupyter-lab").ok()
    wait_for_health(container, "healthy")


def test_no_service_is_healthy(containers: Containers, thin: str) -> None:
    container = containers.start(thin, "sleep", "600", options=QUICK_HEALTH)
    wait_for_health(container, "healthy")
    assert "no service expected" in container.state["Health"]["Log"][-1]["Output"]
