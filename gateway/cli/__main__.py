"""`python -m gateway.cli`: the same as `gateway`."""

import sys

from gateway.cli import main

sys.exit(main())
