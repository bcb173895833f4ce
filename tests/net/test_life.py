"""The table of what a connection can be: it goes on, and comes to an end from everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.net.life import FOLLOWS, Life


@pytest.mark.parametrize("life", Life)
def test_it_only_goes_on(life: Life) -> None:
    """Never back, and it may be lost at any time."""
    assert all(later > life for later in FOLLOWS[life])
    assert Life.LOST in FOLLOWS[life] or life is Life.LOST


@pytest.mark.parametrize("life", [life for life in Life if life > Life.NEW])
def test_something_leads_to_each(life: Life) -> None:
    """No state is there for nothing."""
    assert any(life in following for following in FOLLOWS.values())


def test_a_connection_keeps_to_it(net: Any, peer: Any) -> None:
    """From its transport to its end; what the table does not have is a fault of ours."""
    connection = peer.connection
    assert connection.life is Life.FIRST_BYTES
    peer.send(b"2W")
    assert connection.life is Life.SERVING
    with pytest.raises(AssertionError, match="FIRST_BYTES"):
        connection.become(Life.FIRST_BYTES)
    connection.take_no_more()
    assert connection.life is Life.ANSWERING
    connection.close()
    assert connection.life is Life.CLOSING
    peer.lose()
    assert connection.life is Life.LOST
