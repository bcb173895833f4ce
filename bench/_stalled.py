"""`twistd` on a disk that can be told to hang.

    python bench/_stalled.py FILE CALLS <twistd's arguments>

While FILE exists, the functions of `os` that CALLS names (comma-separated) do not
return: what a dying disk or a lost network mount looks like to the gateway.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def hanging(call: Callable[..., Any], while_exists: Path) -> Callable[..., Any]:
    def wait_then_call(*arguments: Any, **options: Any) -> Any:
        while while_exists.exists():
            time.sleep(0.05)
        return call(*arguments, **options)

    return wait_then_call


if __name__ == "__main__":
    _, where, calls, *rest = sys.argv
    for name in calls.split(","):
        setattr(os, name, hanging(getattr(os, name), Path(where)))
    sys.argv = ["twistd", *rest]
    from twisted.scripts.twistd import run

    run()
