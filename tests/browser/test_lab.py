"""JupyterLab as a person sees it, in two languages: a notebook runs, a plot has its labels, a terminal obeys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.support.containers import Containers
from tests.support.lab import Lab
from tests.support.picture import take
from tests.support.wait import BUDGETS, until

CELLS = (
    "import torch\ntorch.__version__",
    "import warnings\n"
    "warnings.simplefilter('error')\n"
    "import matplotlib.pyplot as plt\n"
    "figure, axes = plt.subplots(figsize=(5, 2.4))\n"
    "axes.plot([1, 2, 3, 4], [0.9, 0.5, 0.35, 0.3], label='训练损失')\n"
    "axes.set_xlabel('轮次')\n"
    "axes.set_title('锁页内存：训练更快')\n"
    "axes.legend();",
)
# What the menus are called; `locale` is JupyterLab's name for the language.
LANGUAGES = {
    "en": {"locale": "default", "file": "File", "run": "Run", "idle": "Idle"},
    "zh": {"locale": "zh_CN", "file": "文件", "run": "运行", "idle": "空闲"},
}


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def lab(language: str, shared_containers: Containers, image: str) -> Lab:
    """A server whose user has chosen the language, with a notebook."""
    # JupyterLab looks for Node at each page, to build extensions; the image brings them built.
    expect = ["Could not determine jupyterlab build status without nodejs"]
    lab = Lab.of(shared_containers.start(image, options=["--publish", "127.0.0.1::8888"], expect=expect))
    chosen = json.dumps({"locale": LANGUAGES[language]["locale"]})
    setting = "lab/api/settings/@jupyterlab/translation-extension:plugin"
    assert lab.ask(setting, "PUT", json={"raw": chosen}).ok
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for source in CELLS
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
    assert lab.ask("api/contents/first.ipynb", "PUT", json={"type": "notebook", "content": notebook}).ok
    return lab


def open_lab(page: Any, lab: Lab, path: str, words: dict[str, str]) -> None:
    """Open it with the URL that the container prints, and wait until its menus are there."""
    page.goto(f"{lab.url}lab{path}?token={lab.token}&reset")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.locator(".lm-MenuBar-itemLabel", has_text=words["file"]).first.wait_for()


def test_a_notebook_runs_and_shows_the_version_and_a_plot(
    page: Any, lab: Lab, language: str, screenshots: Path
) -> None:
    words = LANGUAGES[language]
    open_lab(page, lab, "/tree/first.ipynb", words)
    idle = page.locator("#jp-main-statusbar", has_text=f"Python 3 (ipykernel) | {words['idle']}")
    idle.wait_for()  # what is run while it connects is lost
    page.locator(".lm-MenuBar-item", has_text=words["run"]).first.click()
    page.locator('[data-command="runmenu:run-all"]').click()
    outputs = page.locator(".jp-Cell .jp-OutputArea-output")
    budget = BUDGETS["a kernel's answer"] * 1000
    page.locator(".jp-OutputArea-output img").wait_for(timeout=budget)
    assert outputs.first.inner_text().startswith("'2.7.1+cu126'")
    assert outputs.count() == 2, outputs.all_inner_texts()
    assert page.locator(".jp-OutputArea-output[data-mime-type*=error]").count() == 0
    page.wait_for_function("document.querySelector('.jp-OutputArea-output img').naturalWidth > 200")
    idle.wait_for()
    take(page, screenshots, f"notebook-{language}")


def test_the_launcher_opens_and_nothing_asks_or_complains(
    page: Any, lab: Lab, language: str, screenshots: Path
) -> None:
    """No question about news, no dialog, no notification: the first sight is the launcher."""
    open_lab(page, lab, "", LANGUAGES[language])
    page.locator(".jp-LauncherCard").first.wait_for()
    page.wait_for_timeout(1500)  # what would pop up does so after the launcher
    assert page.locator(".jp-Dialog").count() == 0
    assert page.locator(".Toastify__toast").all_inner_texts() == []
    cards = page.locator(".jp-LauncherCard").all_inner_texts()
    assert any("TensorBoard" in text for text in cards), cards
    take(page, screenshots, f"launcher-{language}")


def test_a_command_typed_in_the_terminal_runs(page: Any, lab: Lab, language: str, screenshots: Path) -> None:
    open_lab(page, lab, "", LANGUAGES[language])
    page.locator('.jp-LauncherCard:has([data-icon="ui-components:terminal"])').first.click()
    terminal = page.locator(".xterm-helper-textarea")
    terminal.wait_for(state="attached")
    page.locator(".xterm-screen").wait_for()
    terminal.focus()
    page.keyboard.type(f"id -un > typed-{language}; python -V; nvitop --version\n")
    name = f"typed-{language}"

    def probe() -> Optional[bool]:
        listed = {entry["name"] for entry in lab.get("api/contents")["content"]}
        return (name in listed and lab.get(f"api/contents/{name}")["content"] == "user\n") or None

    until("a line in the log", probe, lambda: str(lab.get("api/contents")))
    page.wait_for_timeout(1000)  # the picture shows the answers
    take(page, screenshots, f"terminal-{language}")
