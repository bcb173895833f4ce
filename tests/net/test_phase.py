"""The table of what a connection can be: it goes on, and comes to an end from everywhere."""

import pytest

from gateway.net.phase import FOLLOWS, Phase


@pytest.mark.parametrize("phase", Phase)
def test_it_only_goes_on(phase):
    """Never back, and it may be lost at any time."""
    assert all(later > phase for later in FOLLOWS[phase])
    assert Phase.LOST in FOLLOWS[phase] or phase is Phase.LOST


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase > Phase.NEW])
def test_something_leads_to_each(phase):
    """No state is there for nothing."""
    assert any(phase in following for following in FOLLOWS.values())


def test_a_connection_keeps_to_it(net, peer):
    """From its transport to its end; what the table does not have is a fault of ours."""
    connection = peer.connection
    assert connection.phase is Phase.FIRST_BYTES
    peer.send(b"2W")
    assert connection.phase is Phase.SERVING
    with pytest.raises(AssertionError, match="FIRST_BYTES"):
        connection.become(Phase.FIRST_BYTES)
    connection.take_no_more()
    assert connection.phase is Phase.ANSWERING
    connection.close()
    assert connection.phase is Phase.CLOSING
    peer.lose()
    assert connection.phase is Phase.LOST
