"""The faults that are planted for `rsio_check` quote lines that are there."""

import pytest

from planted import FAULTS, changed

ENOUGH = 33


@pytest.mark.parametrize("language", FAULTS)
def test_each_is_there_once(language):
    """Whoever changes a line that is quoted in tests/rsio_check/planted.toml changes it
    there; and each language has enough of them.
    """
    faults = FAULTS[language]
    assert len({fault.wire for fault in faults}) == len(faults) >= ENOUGH
    for fault in faults:
        assert changed(fault, language), fault.wire
