"""A disk that was set back to an earlier moment, as the audit sees it."""

from __future__ import annotations

import pytest

from gateway.audit.incarnations import Line


@pytest.mark.parametrize(
    ("last", "vouches"), [(0, True), (9, True), (10, False), (19, False)]
)
def test_who_gave_lsns_behind_its_successors_first_has_an_end_nobody_knows(
    last: int, vouches: bool
) -> None:
    """A row, a file or a word of it tells; where it began need not be known."""
    for since in (0, 1):
        line = Line("b", 10, {"a": since})
        assert line.vouches("a", last) is vouches
        assert line.vouches("b", last)
        assert not line.vouches("c", last)
        assert not Line("b", 10, {"a": since}, {"a"}).vouches("a", 1)


def test_an_id_of_an_unknown_beginning_may_be_older_than_those_before_it() -> None:
    """As the mark tells of it, where an older copy of a journal was put back."""
    line = Line("d", 4, {"c": 0, "a": 1})
    assert line.vouches("c", 3)
    assert not line.vouches("c", 4)
