"""The kernel in C (`gateway-native`), where it is installed.

Each of its functions does what one in Python does, which is the reference and is taken
where there is no kernel: `native.kernel.rows if native.kernel else …`.  With
`GATEWAY_NATIVE=no` in the environment nothing takes it.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["OTHER", "kernel", "said"]

_INTERFACE = 6

OTHER = "not taken: gateway-native is of another version than the gateway"


def _installed() -> tuple[Any, str]:
    if os.environ.get("GATEWAY_NATIVE") == "no":
        return None, "left out by GATEWAY_NATIVE=no"
    try:
        import gateway_native
    except ImportError as why:
        lacks = "not installed" if why.name == "gateway_native" else "not compiled"
        return None, f"{lacks}, and nothing needs it (docs/install.md says how)"
    if gateway_native.INTERFACE != _INTERFACE:
        return None, OTHER
    return gateway_native, "taken"


kernel: Any
"""The package; None if there is none, or one for another gateway."""
said: str
"""A sentence for the operator: it is taken, or why not."""
kernel, said = _installed()
