"""The live page in a real browser, on a real daemon: what somebody sees at night."""

import json
import socket
import struct
import time
from typing import Any

import pytest

from chromium import Chromium
from daemons import Daemon, full_spool, listener, send
from gateway.store.readers.lake import health_path

_AXE = """
process.stdout.write(require("fs").readFileSync(
    require.resolve("axe-core/axe.min.js"), "utf8"));
"""
_PARTS = "document.querySelectorAll('details').forEach(part => { part.open = true; })"
_SENTENCE = "(document.getElementById('sentence')?.textContent ?? '')"
_STANDS = "document.querySelector('.way li.bad, .way li.warning')?.id ?? ''"
_REACHED = """
[...document.querySelectorAll(".scroll")].every(part => {
    part.scrollLeft = 100000;
    const last = part.querySelector("th:last-child").getBoundingClientRect();
    return last.right <= innerWidth + 1;
})
"""


_CUT = """
[...document.querySelectorAll("td.long, .card dt, .card dd, .way dd, .big")]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText)
"""
_BESIDE = """
(part => part.scrollWidth - part.clientWidth)(document.querySelector("#listeners").parentNode)
"""
_OVERLAID = """
[...document.querySelectorAll("dl")].flatMap(list => {
    const texts = [...list.children].map(one => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return [one.innerText, range.getBoundingClientRect()];
    });
    return texts.flatMap(([name, a], at) => texts.slice(at + 1)
        .filter(([, b]) => a.right > b.left + 1 && b.right > a.left + 1
            && a.bottom > b.top + 2 && b.bottom > a.top + 2)
        .map(([other]) => name + " under " + other));
})
"""


def settings() -> dict[str, Any]:
    """A spool that is full soon, with one listener of each of two protocols."""
    return {
        "listeners": [
            listener("beats", "lumberjack", limits={"message_bytes": "1MiB"}),
            listener("game", "pomelo", options={"routes": ["area.player.move"]}),
        ],
        "journal": {"segment_bytes": "256KiB"},
        "spool": {
            "max_bytes": "2MiB",
            "roll_bytes": "256KiB",
            "roll_interval": "200ms",
            "compression": "none",
        },
    }


def silent_job(daemon: Daemon, seconds: float) -> None:
    """As a job that ran, and left word so long ago."""
    path = health_path(daemon.data / "lake")
    path.parent.mkdir(parents=True, exist_ok=True)
    batch = {"at": time.time() - seconds, "seconds": 0.5, "rows": 7, "files": 1}
    told = {"at": time.time() - seconds, "state": "running", "committed_by": {}}
    told["paths"] = ["order.total"]
    path.write_text(json.dumps({**told, "recent": [batch]}))


def findings(chromium: Chromium) -> Any:
    """Of axe: rule, and where."""
    return chromium.look(
        "axe.run().then(found => found.violations.map(one => "
        "[one.id, one.nodes.map(node => node.html.slice(0, 120))]))"
    )


@pytest.mark.slow
@pytest.mark.needs_npm
def test_the_page_by_day_and_night(start, npm, chromium):
    """It shows what stands and where, filters, taps, fits a phone, is read with a
    keyboard and a screen reader, and asks nobody else for anything.
    """
    axe = npm("axe-core@4.14.1")(_AXE)
    daemon = start(**settings())
    address = f"http://{daemon.admin}/"
    chromium.show(1280, 900)
    chromium.open(address)
    chromium.wait(f"{_SENTENCE}.startsWith('Nothing has ever come')", "the first word")
    assert chromium.look(_STANDS) == ""

    send(daemon, b'{"n": 1}', b'{"n": 2}')
    chromium.wait(f"{_SENTENCE}.startsWith('No Spark job has reported')", "no job")
    assert chromium.look(_STANDS) == "at-spark"
    silent_job(daemon, 250)
    chromium.wait(
        f"{_SENTENCE}.startsWith('Spark has been silent for 4 min')", "silent"
    )

    paths = chromium.look("document.getElementById('paths').innerText")
    assert paths.startswith("In many events, and in no column: order.total. See")
    chromium.look(_PARTS)
    rows = "document.querySelectorAll('#listeners tbody tr').length"
    assert chromium.look(rows) == 2
    chromium.look(
        "(field => { field.value = 'pomelo'; field.dispatchEvent(new Event('input')); })"
        "(document.getElementById('listeners-find'))"
    )
    assert chromium.look(rows) == 1
    chromium.look("document.querySelector('#listeners th button').focus()")
    assert chromium.look("document.activeElement.textContent") == "name"
    chromium.press("Enter")
    order = "document.querySelector('#listeners th').getAttribute('aria-sort')"
    assert chromium.look(order) == "descending"

    chromium.look("document.querySelector('[name=\"find.payload\"]').value = 'needle'")
    chromium.look("document.querySelector('#tap-form button').click()")
    chromium.wait(
        "document.querySelector('#tap-form button').textContent === 'stop'", ""
    )
    shown = "[...document.querySelectorAll('#tap tbody tr')].map(row => row.innerText)"
    deaf = 0
    while not (found := chromium.look(f"{shown}.filter(one => /needle/.test(one))")):
        deaf += 1
        assert deaf < 500
        send(daemon, b'{"hay": 1}', b'{"a": "<b>needle</b>"}')
    assert "<b>needle</b>" in found[0], "it is text, and no markup"
    assert not chromium.look(f"{shown}.some(one => /hay/.test(one))")

    with socket.create_connection(daemon.address()) as odd:
        odd.sendall(struct.pack(">2sI2sII", b"2W", 1, b"2J", 1, 1 << 30))
        odd.recv(9)
    chromium.wait(
        "/limits.inflated_bytes/.test(document.getElementById('rejections').innerText)",
        "the rejection",
    )
    chromium.look(axe + "; 1")
    for width, dark in ((1280, False), (1280, True), (390, False), (390, True)):
        chromium.show(width, 900, dark=dark)
        assert findings(chromium) == [], (width, dark)
        wide = chromium.look("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, (width, dark)
        assert chromium.look(_REACHED), "all columns can be reached"
        assert chromium.look(_CUT) == [], width
        assert chromium.look(_OVERLAID) == [], width
    chromium.show(1400, 900)
    assert chromium.look(_BESIDE) == 0, "the last error is on the screen of a desk"
    hour = "document.querySelector('.ticks span').textContent"
    assert chromium.look(hour) != "1 h ago", "what there is of the hour has the width"

    with full_spool(daemon):
        start_of = "Senders wait, because the spool is full (2.0 MiB, spool.max_bytes)"
        chromium.wait(f"{_SENTENCE}.startsWith({json.dumps(start_of)})", "full")
        assert chromium.look(_STANDS) == "at-spool"
        assert findings(chromium) == []

    assert chromium.console == []
    daemon.kill()
    chromium.wait(
        f"{_SENTENCE}.startsWith('The gateway does not answer')", "it is gone"
    )
    assert chromium.look(_STANDS) == "at-listeners"
    there = (address, "about:blank", "data:")
    assert [one for one in chromium.requested if not one.startswith(there)] == []


def acknowledged(peer: socket.socket) -> None:
    """The window of one event that was sent on it; what says only that it waits aside."""
    while (answer := peer.recv(6, socket.MSG_WAITALL)) == struct.pack(">2sI", b"2A", 0):
        pass
    assert answer == struct.pack(">2sI", b"2A", 1)


@pytest.mark.slow
def test_a_disk_that_is_full_and_one_that_hangs(small_disk, start, chromium):
    """The page says so while it is, and the daemon answers; nobody is acknowledged before
    the disk is itself again, and everybody then.
    """
    daemon = start(
        data_dir=str(small_disk.place / "data"),
        journal={"segment_bytes": "256KiB", "stall_after": "1s"},
        spool={"roll_interval": "200ms", "after": "keep"},
    )
    window = struct.pack(">2sI2sII", b"2W", 1, b"2J", 1, 2) + b"{}"
    chromium.show(1280, 900)
    chromium.open(f"http://{daemon.admin}/")
    send(daemon, b"{}")
    well = f"{_SENTENCE}.startsWith('All well: ')"
    chromium.wait(well, "all is well")
    faults = (
        (
            small_disk.full,
            f"Senders wait, because the disk of {small_disk.place / 'data'}",
            "is full",
            "make room elsewhere on that disk",
        ),
        (
            small_disk.hanging,
            "Senders wait, because the disk does not answer",
            "a batch has waited",
            "dmesg",
        ),
    )
    for fault, begin, *words in faults:
        durable = daemon.status()["journal"]["durable_lsn"]
        with socket.create_connection(daemon.address()) as peer:
            with fault():
                peer.sendall(window)
                says = f"{_SENTENCE}.startsWith({json.dumps(begin)})"
                chromium.wait(says, begin)
                sentence = chromium.look(_SENTENCE)
                assert [word for word in words if word not in sentence] == []
                assert chromium.look(_STANDS) == "at-journal"
                assert daemon.status()["journal"]["durable_lsn"] == durable
            acknowledged(peer)
        chromium.wait(well, "all is well again")
        assert chromium.look(_STANDS) == ""
    daemon.eventually(
        lambda: daemon.status()["spool"]["published_lsn"] == 3, "all is published"
    )
    assert chromium.console == []


@pytest.mark.slow
def test_without_trust(start, chromium, tmp_path):
    """On loopback without a token the tap shows no payloads, and says what they want."""
    daemon = start(**settings(), admin={"trust_loopback": False})
    chromium.open(f"http://{daemon.admin}/")
    chromium.wait(f"{_SENTENCE}.startsWith('Nothing has ever come')", "the first word")
    about = chromium.look("document.getElementById('tap-about').textContent")
    assert "admin.trust_loopback" in about
    assert chromium.look("document.querySelector('[name=\"find.payload\"]').disabled")
    chromium.look("document.getElementById('tap-part').open = true")
    chromium.look("document.querySelector('#tap-form button').click()")
    shown = "document.getElementById('tap').innerText"
    while "not shown without a token" not in chromium.look(shown):
        send(daemon, b'{"secret": 1}')
    assert "secret" not in chromium.look(shown)
    assert chromium.console == []


@pytest.mark.slow
@pytest.mark.needs_npm
def test_three_gateways_and_one_that_hangs(start, npm, chromium, tmp_path):
    """A row for each, which says whose tables are behind; who hangs has one that says so,
    and the page goes on.  A page that was open before a reload told of them shows them, too.
    """
    axe = npm("axe-core@4.14.1")(_AXE)
    others = [
        start(node=f"gw-{number}", data_dir=str(tmp_path / f"gw-{number}"))
        for number in (2, 3)
    ]
    send(others[1], b"{}")
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        mute = f"127.0.0.1:{hangs.getsockname()[1]}"
        daemon = start(node="gw-1")
        chromium.show(1400, 900)
        chromium.open(f"http://{daemon.admin}/")
        chromium.wait(f"{_SENTENCE}.startsWith('Nothing has ever come')", "it alone")
        assert chromium.look("document.getElementById('gateways-part').hidden")
        settings = json.loads(daemon.config.read_text())
        settings["admin"]["peers"] = [*(one.admin for one in others), mute]
        daemon.config.write_text(json.dumps(settings))
        daemon.hang_up()
        rows = "[...document.querySelectorAll('#gateways tbody tr')].map(row => row.innerText)"
        chromium.wait(
            f"{rows}.some(row => /does not answer/.test(row))", "the mute one"
        )
        chromium.wait(f"{rows}.some(row => /No Spark job/.test(row))", "gw-3")
        found = chromium.look(rows)
        assert len(found) == 4
        assert {row.split("\t")[0] for row in found} == {
            "gw-1",
            "gw-2",
            "gw-3",
            f"http://{mute}",
        }
        assert daemon.status()["ready"]
        chromium.look(axe + "; 1")
        for width in (1400, 390):
            chromium.show(width, 900)
            assert findings(chromium) == [], width
            wide = chromium.look("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, width
            assert chromium.look(_REACHED), "all columns can be reached"
            assert chromium.look(_CUT) == [], width
        assert chromium.console == []
