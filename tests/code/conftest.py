"""The image with VS Code: the one under test with `-code` behind its name."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def code_image(image: str, client: Any) -> str:
    """The variant of the image under test. A missing one fails; it never skips."""
    import docker.errors

    name = f"{image}-code"
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        pytest.fail(f"there is no image {name}; python3 -m scripts.build embedded-code   makes it", pytrace=False)
    return name
