"""What one client can send that costs little; the ceilings are tests/test_amplification.py's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway_otlp import protocol
from gateway_testkit.attacks import Attack, Trial
from gateway_testkit.http_attacks import http_attacks

ONE = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}'
MANY = ONE.replace(b"{}", b",".join([b"{}"] * 10000))
ATTACKS = http_attacks("otlp", "/v1/logs", "application/json", ONE, MANY)


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_what_it_costs(attack: Attack, tmp_path: Path) -> None:
    """The journal takes no more than four times what came, a turn has its bounds."""
    limits = {"message_bytes": "1MiB", "control_messages": 500}
    trial = Trial(attack, tmp_path, protocol, limits=limits)
    trial.run()
    trial.check_bounds(most_deflated=1 << 17)


@pytest.mark.parametrize(
    "attack", [each for each in ATTACKS if each.endless], ids=lambda attack: attack.name
)
def test_what_brings_nothing_is_refused(attack: Attack, tmp_path: Path) -> None:
    """In the end, by a limit or by what HTTP allows."""
    limits = {"message_bytes": "32KiB", "control_messages": 100}
    trial = Trial(attack, tmp_path, protocol, limits=limits)
    trial.run(1 << 20)
    assert trial.over, "it goes on"
    assert trial.connection.held_bytes == 0
