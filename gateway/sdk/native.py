"""The kernel in C (`gateway-native`), where it is installed.

Each of its functions does what one in Python does, which is the reference and is taken
where there is no kernel: `native.kernel.rows if native.kernel else …`.  With
`GATEWAY_NATIVE=no` in the environment nothing takes it.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["kernel"]

_INTERFACE = 1


def _installed() -> Any:
    if os.environ.get("GATEWAY_NATIVE") == "no":
        return None
    try:
        import gateway_native
    except ImportError:
        return None
    return gateway_native if gateway_native.INTERFACE == _INTERFACE else None


kernel: Any = _installed()
"""The package; None if there is none, or one for another gateway."""
