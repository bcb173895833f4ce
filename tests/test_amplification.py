"""Ceilings on what a peer can make us do, by counts: bench/amplification.py has times."""

import pytest

from attacks import ATTACKS
from gateway_testkit.attacks import Trial

KiB = 1 << 10
MOST_ROWS = 1 << 16


@pytest.mark.parametrize(
    "attack", ATTACKS, ids=lambda attack: f"{attack.protocol}: {attack.name}"
)
def test_amplification(attack, tmp_path):
    """Bounded are the journal, and each turn; what makes no progress is refused."""
    trial = Trial(attack, tmp_path, limits={"control_messages": 1000})
    trial.run()
    trial.check_bounds()
    refused = trial.refused
    assert refused is not None or not attack.endless
    if refused is not None:
        assert refused.rule
        assert refused.limit is not None or "control messages" not in refused.rule
        assert refused.key is not None or "control messages" not in refused.rule


@pytest.mark.parametrize(
    "attack", ATTACKS, ids=lambda attack: f"{attack.protocol}: {attack.name}"
)
def test_what_was_stored_can_be_decoded(attack, tmp_path):
    """However it is stored, it has as many rows as were acknowledged."""
    trial = Trial(attack, tmp_path)
    trial.run(min(attack.most, 8 * KiB), keep=True)
    if trial.events <= MOST_ROWS:
        assert len(trial.daemon.rows()) == trial.events
