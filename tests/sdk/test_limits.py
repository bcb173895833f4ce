"""How a protocol's own limits are made of a listener's limits and options."""

from dataclasses import dataclass

from gateway.protocols.lumberjack.options import Options
from gateway.sdk.limits import Limits, limits_of
from gateway_testkit.settings import settings


@dataclass
class Own:
    """Of limits, of options, of neither."""

    message_bytes: int = 1
    pairs: int = 2
    depth: int = 3


def test_limits_are_found_by_name():
    """A field is the option or the key of that name; what is neither stays."""
    found = limits_of(Own, settings(Options, message_bytes=10, pairs=20))
    assert found == Own(10, 20, 3)
    usual = limits_of(Own, settings(Options))
    assert usual == Own(Limits().message_bytes, Options().pairs, 3)
