"""Where there is no torch or no GPU these tests are skipped, and say so."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all without a GPU. The hook sees every test of the session: only those below tests/gpu are meant."""
    try:
        import torch

        reason = "" if torch.cuda.is_available() else "needs a CUDA device"
    except ImportError:
        reason = "needs torch and a CUDA device"
    for item in items:
        if reason and "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=reason))
