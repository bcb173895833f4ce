"""What one peer can send that costs little: at least one attack for every frame type.

`bench/amplification.py` measures what they cost, and tests/test_amplification.py holds
them to ceilings.  A module for each protocol; add yours to `ATTACKS`.
"""

from attacks import controller, draft, lumberjack, pomelo, pravega, rsio

__all__ = ["ATTACKS"]

ATTACKS = [
    attack
    for module in (lumberjack, pomelo, rsio, pravega, draft, controller)
    for attack in module.ATTACKS
]
