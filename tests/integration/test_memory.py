"""What the daemon remembers beside events, over kills, stops and other configurations."""

import json
import random
import threading
import time

import pytest

from daemons import listener
from deadlines import eventually
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega.wire import (
    NEVER,
    AppendBlockEnd,
    AppendSetup,
    DataAppended,
    SetupAppend,
)
from pravega_socket import Client

WRITER, ATTRIBUTE = b"w" * 16, b"a" * 16
BEATS = listener("beats", "lumberjack")
STREAMS = listener("streams", "pravega")


class Story:
    """What was asked of the gateway, and which of it was answered."""

    def __init__(self) -> None:
        self.sealed: list[str] = []
        self.attribute = NEVER
        self.event = NEVER
        self.asked = 0

    def go_on(self, client: Client) -> None:
        """For ever: a segment, a seal, a number, an event."""
        last = client.ask(SetupAppend(1, WRITER, "s"), AppendSetup).last_event
        assert last in (self.event, max(self.event, 0) + 1)
        while True:
            self.asked += 1
            name = f"t{self.asked}"
            client.ask(ws.CreateSegment(1, name, 0, 0), ws.SegmentCreated)
            client.ask(ws.SealSegment(1, name), ws.SegmentSealed)
            self.sealed.append(name)
            last = max(last, 0) + 1
            event = AppendBlockEnd(WRITER, 12, b"\0\0\0\0\0\0\0\4four", 1, last, 9)
            client.ask(event, DataAppended)
            self.event = last
            found = client.ask(ws.GetStreamSegmentInfo(1, "s"), ws.StreamSegmentInfo)
            assert found.write_offset == 12 * last
            new = max(self.attribute, 0) + 1
            update = ws.UpdateSegmentAttribute(1, "s", ATTRIBUTE, new, self.attribute)
            assert client.ask(update, ws.SegmentAttributeUpdated).success
            self.attribute = new

    def check(self, client: Client) -> None:
        """All that was answered is true."""
        for name in self.sealed:
            found = client.ask(ws.GetStreamSegmentInfo(1, name), ws.StreamSegmentInfo)
            assert found.sealed, name
        last = client.ask(SetupAppend(1, WRITER, "s"), AppendSetup).last_event
        assert last in (self.event, max(self.event, 0) + 1)
        found = client.ask(ws.GetStreamSegmentInfo(1, "s"), ws.StreamSegmentInfo)
        assert found.write_offset == 12 * max(last, 0)
        asked = ws.GetSegmentAttribute(1, "s", ATTRIBUTE)
        value = client.ask(asked, ws.SegmentAttribute).value
        assert value in (self.attribute, max(self.attribute, 0) + 1)
        self.attribute = value


@pytest.mark.slow
def test_what_was_answered_survives_kills(prepare, gateway_command):
    """Killed ten times, also just after it began; nothing that it said is forgotten."""
    chance = random.Random(20261121)
    daemon = prepare(listeners=[STREAMS]).start()
    client = Client(daemon.address("streams"))
    client.ask(ws.CreateSegment(1, "s", 0, 0), ws.SegmentCreated)
    client.close()
    story = Story()
    for turn in range(10):
        client = Client(daemon.address("streams"))
        story.check(client)
        due, seconds = story.asked + 4 * (turn % 3), chance.random() * (turn % 3)

        def kill(due: int = due, seconds: float = seconds) -> None:
            eventually(lambda: story.asked >= due, "it goes on")
            time.sleep(seconds)
            daemon.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(OSError, match=r".*"):
            story.go_on(client)
        killer.join()
        client.close()
        daemon.start()
    client = Client(daemon.address("streams"))
    story.check(client)
    client.close()
    assert daemon.terminate() in (0, -15, 143)
    assert daemon.segments() == []
    assert len(story.sealed) > 20
    audit = gateway_command("audit", "--config", daemon.config, "--json")
    assert audit.returncode == 0, audit.stdout
    rows = daemon.rows()
    assert len(rows) in (story.event, story.event + 1)
    assert [row["seq"] for row in rows] == [12 * n for n in range(len(rows))]


def test_it_is_remembered_by_whoever_serves_what(prepare):
    """A protocol that is taken out of the configuration for a while forgets nothing."""
    daemon = prepare(listeners=[STREAMS, BEATS]).start()
    client = Client(daemon.address("streams"))
    for name in ("a", "b"):
        client.ask(ws.CreateSegment(1, name, 0, 0), ws.SegmentCreated)
    client.ask(ws.SealSegment(1, "a"), ws.SegmentSealed)
    client.close()
    settings = json.loads(daemon.config.read_text())
    eventually(
        (daemon.data / "state/gw-1/pravega.state").exists, "its first state file"
    )
    daemon.kill()
    for listeners in ([BEATS], [BEATS], [STREAMS]):
        daemon.config.write_text(json.dumps({**settings, "listeners": listeners}))
        daemon.start()
        if listeners == [BEATS]:
            daemon.terminate()
            assert daemon.segments() == []
    client = Client(daemon.address("streams"))
    found = client.ask(ws.GetStreamSegmentInfo(1, "a"), ws.StreamSegmentInfo)
    assert (found.exists, found.sealed) == (True, True)
    found = client.ask(ws.GetStreamSegmentInfo(1, "b"), ws.StreamSegmentInfo)
    assert (found.exists, found.sealed) == (True, False)
    client.close()
