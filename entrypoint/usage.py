"""`--help` and `--version` of the image: asked for by the user, so the one thing that goes to stdout."""

from __future__ import annotations

from entrypoint.settings import TABLE, Setting

IMAGE_FACTS = "/opt/pytorch-cuda/image.json"

_HEAD = """\
usage: docker run [OPTIONS] IMAGE [COMMAND]

  docker run -it --gpus all -p 8888:8888 -v ./code:/workspace/code IMAGE

commands
  (none)            JupyterLab, or what MODE says
  jupyter [--ServerApp.OPTION=VALUE ...]
                    JupyterLab, with options of Jupyter's own
  ssh, all, code    sshd; JupyterLab and sshd; VS Code in the browser
  train ...         train on data fed through pinned memory   (train --help)
  bench, probe, pack ...
                    measure the feed, look at the machine, pack a data set
  doctor [--json] [--deep]
                    what is wrong with this machine or container, and what mends it
  selftest          the tests in the image
  --help, --version of the image
  anything else     is run as it stands, as the user: bash, python train.py, nvidia-smi

variables (docker run -e NAME=VALUE)
"""


def help_text() -> str:
    """The whole text of `--help`, made from the table of settings."""
    return _HEAD + "".join(_row(setting) for setting in TABLE)


def _row(setting: Setting) -> str:
    name = f"{setting.name}[_FILE]" if setting.by_file else setting.name
    values = f" ({', '.join(setting.choices)})" if setting.choices else ""
    default = f" [{_default(setting)}]" if setting.default not in (None, "") else ""
    return f"  {name:<29} {setting.help}{values}{default}\n"


def _default(setting: Setting) -> str:
    return str(int(setting.default)) if setting.kind == "switch" else str(setting.default)


def version_text(path: str = IMAGE_FACTS) -> str:
    """What the image is: the facts that the build wrote down, or that it wrote none."""
    import json

    try:
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
    except (OSError, ValueError):
        return f"pytorch-cuda (a build without {path})\n"
    head = f"pytorch-cuda {facts.pop('version', '?')}\n"
    return head + "".join(f"  {name:<12} {value}\n" for name, value in sorted(facts.items()))
