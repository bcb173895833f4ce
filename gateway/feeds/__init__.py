"""The gateway's own publishers: `tap`, events as they become durable, and `events`, all
of them from a given one on.

docs/rsio.md says how to use them; `gateway tap` does.
"""

from gateway.feeds.files import Places
from gateway.feeds.live import Live, Tap
from gateway.feeds.page import tap_page
from gateway.feeds.replay import Replay

__all__ = ["Live", "Places", "Replay", "Tap", "tap_page"]
