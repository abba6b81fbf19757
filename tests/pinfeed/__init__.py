"""Tests of pinfeed. They run where torch is: in the test image, or in an environment of one's own."""

from __future__ import annotations

import os

# As pinfeed's own command line does, and as early: torch reads it when it loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
