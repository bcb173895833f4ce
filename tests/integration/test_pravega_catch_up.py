"""A reader that comes late to a daemon, which has rolled what it took meanwhile."""

from typing import Any

import pytest

from gateway.protocols.pravega.client import V17Writer
from pravega_socket import produce

SEGMENT = "plant/hall/0.#epoch.0"


def events(first: int, last: int) -> list[bytes]:
    """A KiB each, with their headers."""
    return [b"%1016d" % n for n in range(first, last)]


@pytest.fixture
def late(serve) -> Any:
    """A daemon that keeps little in memory, and publishes only when it stops."""
    return serve(
        options={"recent_bytes": "64KiB"},
        spool={
            "roll_interval": "10m",
            "roll_bytes": "64MiB",
            "roll_events": 10**7,
            "retention": "1h",
        },
    )


@pytest.mark.needs_pravega
def test_the_published_client_comes_late(late, pravega_client, eventually):
    """It reads a stream from its head, wherever that lies; also when its file has left
    the archive.
    """
    client = pravega_client(late.controller)
    client.manager.create_scope("plant")
    client.manager.create_stream("plant", "hall", 1)
    client.kill()
    produce(V17Writer(b"w" * 16, SEGMENT), late.port, events(0, 1000), 1000)

    def read(group: str, count: int) -> list[bytes]:
        # One that lost its daemon waits for some seconds before it asks for it again.
        client = pravega_client(late.controller)
        made = client.manager.create_reader_group(group, "plant", "hall")
        reader = made.create_reader("r")
        found: list[bytes] = client.whole.read(reader, count)
        reader.reader_offline()
        client.kill()
        return found

    assert read("journal", 1000) == events(0, 1000)
    late.restart()
    produce(V17Writer(b"x" * 16, SEGMENT), late.port, events(1000, 2000), 1000)
    assert read("spool", 2000) == events(0, 2000)
    [path] = late.daemon.spool.glob("*.parquet")
    late.daemon.terminate()
    expired = late.daemon.archive / path.name
    path.rename(expired)
    config = late.daemon.config
    config.write_text(config.read_text().replace('"1h"', '"100ms"'))
    late.daemon.start()
    eventually(lambda: not expired.exists(), "the archive drops it")
    assert read("retained", 2000) == events(0, 2000)
