"""`python -m pinfeed`."""

from __future__ import annotations

import sys

from pinfeed.cli import main

if __name__ == "__main__":
    sys.exit(main())
