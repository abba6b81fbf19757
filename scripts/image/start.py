"""First program of root's interpreter in the container (`python -I -S`): it finds its own package."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from entrypoint.__main__ import main  # the path above must be set first

sys.exit(main(sys.argv[1:]))
