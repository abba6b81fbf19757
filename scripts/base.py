"""The image that the Dockerfile starts from: NVIDIA's where its registry answers, else one made on the spot."""

from __future__ import annotations

import os
import shutil
import ssl
import threading
import urllib.error
import urllib.request

from scripts import names, packages, process, ui
from scripts.engine import Engine

SECONDS_FOR_REGISTRY = 5
INCLUDE = "ca-certificates,python3,python3-venv,python3-dev"
SUITES = {"embedded": "trixie", "glibc231": "bullseye"}


def choose_variant(engine: Engine) -> str:
    """Choose `default` or `embedded`: VARIANT, else what exists here, else what can be built here."""
    wanted = os.environ.get("VARIANT", "")
    if wanted:
        return _known(wanted)
    for variant in names.VARIANTS:
        if engine.image_id(names.image_of(variant)):
            return variant
    host = names.public_host("base_registry")
    if registry_answers(host):
        return "default"
    ui.say(f"The registry of the default base ({host}) did not answer within {SECONDS_FOR_REGISTRY} s.")
    ui.say("So the image is built on the embedded base: Debian 13 made on the spot, with the same packages above it.")
    return "embedded"


def _known(variant: str) -> str:
    if variant not in names.VARIANTS:
        raise ui.UserError(
            f"VARIANT must be one of: {', '.join(names.VARIANTS)}",
            f"VARIANT={variant}",
            "make run VARIANT=embedded",
            64,
        )
    return variant


def registry_answers(host: str, seconds: float = SECONDS_FOR_REGISTRY) -> bool:
    """Ask the registry's own first question. In a thread: looking a name up knows no time limit."""
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(_ask_registry(host, seconds)), daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(answers) and answers[0]


def _ask_registry(host: str, seconds: float) -> bool:
    bundle = names.ca_bundle()
    context = ssl.create_default_context(cafile=str(bundle) if bundle else None)
    try:
        with urllib.request.urlopen(f"https://{host}/v2/", timeout=seconds, context=context):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code == 401  # "log in first": a registry. A proxy's refusal is another code
    except (OSError, ValueError):
        return False


def ensure_base(engine: Engine, name: str) -> str:
    """Make a base image unless it exists, and give its name."""
    image = f"{names.BASE_REPOSITORY}:{name}"
    if engine.image_id(image):
        return image
    if not shutil.which("mmdebstrap"):
        packages.install(packages.missing(), f"The base image {image} is made by mmdebstrap, which is missing here")
    suite = SUITES[name]
    with ui.steps.step(f"make the base {image}", f"Debian's {suite} from Debian's own mirror, about 40 s"):
        _make(engine, suite, image)
    return image


def _make(engine: Engine, suite: str, image: str) -> None:
    log = names.LOGS / f"base-{suite}.log"
    made, imported = process.pipe(
        ["mmdebstrap", "--variant=minbase", f"--include={INCLUDE}", suite, "-"],
        engine.command("import", "-"),
        log,
        {**os.environ, "SOURCE_DATE_EPOCH": names.source_date_epoch()},
    )
    if not made.ok:
        raise ui.UserError(
            f"the base image could not be made: mmdebstrap {suite} failed",
            made.last_words,
            f"check that Debian's mirror can be reached; {log} has all it said",
        )
    # The name is given last: half an image must never be taken for a base.
    tagged = engine.ask("tag", imported.out.strip(), image) if imported.ok else imported
    if not tagged.ok:
        raise ui.UserError(
            f"the base image {image} could not be stored", tagged.last_words, "check the disk space: docker system df"
        )
