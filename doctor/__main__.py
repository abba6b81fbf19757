"""`python3 -m doctor`, from a checkout and in the image."""

import sys

from doctor.cli import main

sys.exit(main())
