"""RS.io implementations of other languages, put to the tests of the kit (`rsio_check`)."""

from __future__ import annotations

import subprocess

from deadlines import next_line
from rsio_check import Outcome, Target, chosen, over_tcp, run, survey


def failures(
    served: subprocess.Popen[str], hello_seconds: float
) -> list[tuple[str, str, str]]:
    """The tests that a server does not pass, or that were left out: names, outcomes, reasons.

    It says its port first, and waits for so long for the hello of a peer.
    """
    port = int(next_line(served))
    target = Target(lambda: over_tcp("127.0.0.1", port), patience=60)
    target.hello_seconds = hello_seconds
    survey(target)
    return [
        (one.test.name, one.outcome.value, one.why)
        for one in run(target, chosen(target))
        if one.outcome is not Outcome.PASSED
    ]
