"""`python -m rsio_check HOST:PORT`."""

from __future__ import annotations

import sys

from rsio_check.command import main

if __name__ == "__main__":
    sys.exit(main())
