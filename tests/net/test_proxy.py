"""PROXY headers, in any slicing."""

import socket
import struct
from contextlib import suppress

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.proxy import (
    SIGNATURE_V2,
    ProxyHeader,
    ProxyHeaderParser,
    TrustedNetworks,
)
from gateway.sdk.interfaces import Refusal

V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5044\r\n"
V1_6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 5044\r\n"


def v2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE_V2 + struct.pack("!BBH", 0x20 | command, family, len(body)) + body


V4 = socket.inet_aton("192.0.2.7") + socket.inet_aton("198.51.100.1")
PORTS = struct.pack("!HH", 40000, 5044)
V6 = b"".join(socket.inet_pton(socket.AF_INET6, a) for a in ("2001:db8::7", "::1"))
TLV = b"\x20\x00\x0f\x01\0\0\0\0" + b"\x22\0\7" + b"example"
NAMED = ("192.0.2.7", 40000)


def summed(family: int, addresses: bytes, before: bytes, after: bytes) -> bytes:
    """A header with a CRC32C TLV between others."""
    there = before + b"\3\0\4"
    head = v2(1, family, addresses + there + bytes(4) + after)
    at = len(SIGNATURE_V2) + 4 + len(addresses) + len(there)
    return head[:at] + google_crc32c.value(head).to_bytes(4) + head[at + 4 :]


SUMMED = summed(0x11, V4 + PORTS, TLV, b"\4\0\1\0")

HEADERS = [
    (V1, NAMED),
    (V1_6, ("2001:db8::7", 40000)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    (v2(1, 0x11, V4 + PORTS), NAMED),
    (v2(1, 0x11, V4 + PORTS + TLV), NAMED),
    (SUMMED, NAMED),
    (summed(0x21, V6 + PORTS, b"", b""), ("2001:db8::7", 40000)),
    (summed(0x31, bytes(216), TLV, b""), None),
    (v2(1, 0x21, V6 + PORTS), ("2001:db8::7", 40000)),
    (v2(0, 0x00, b""), None),
    (v2(0, 0x11, V4 + PORTS), None),
    (v2(1, 0x00, b"whatever"), None),
    (v2(1, 0x31, bytes(216)), None),
]


def parsed(pieces: list[bytes]) -> ProxyHeader | None:
    header = ProxyHeaderParser()
    for at, piece in enumerate(pieces):
        found = header.feed(piece)
        if found is not None:
            return found._replace(rest=found.rest + b"".join(pieces[at + 1 :]))
    return None


@pytest.mark.parametrize(("header", "peer"), HEADERS)
def test_it_may_be_split_at_every_byte(header, peer):
    """However a header is cut in two, peer and rest are the same."""
    whole = header + b"2W\0\0\0\1"
    for cut in range(len(whole) + 1):
        pieces = [piece for piece in (whole[:cut], whole[cut:]) if piece]
        assert parsed(pieces) == ProxyHeader(peer, b"2W\0\0\0\1")


@pytest.mark.parametrize(("header", "peer"), HEADERS)
def test_it_may_come_byte_by_byte(header, peer):
    """One byte at a time, and it is complete with its last byte, not later."""
    reader = ProxyHeaderParser()
    for byte in header[:-1]:
        assert reader.feed(bytes((byte,))) is None
    assert reader.feed(header[-1:]) == ProxyHeader(peer, b"")


BAD = [
    b"2W\0\0\0\1",
    b"GET / HTTP/1.1\r\n\r\n",
    b"PROXY\tTCP4",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 99999\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 -1 2\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
    b"PROXY TCP4 2001:db8::7 5.6.7.8 1 2\r\n",
    b"PROXY TCP4  5.6.7.8 1 2\r\n",
    b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
    b"PROXY \xff\xfe\r\n",
    SIGNATURE_V2 + b"\x31\x11\0\0",
    SIGNATURE_V2 + b"\x22\x11\0\0",
    v2(1, 0x11, V4),
    v2(1, 0x12, V4 + PORTS),
    v2(1, 0x21, V4 + PORTS),
    v2(1, 0x31, bytes(215)),
    v2(1, 0x11, V4 + PORTS + b"\3\0\3abc"),
    v2(1, 0x11, V4 + PORTS + b"\4\0"),
    v2(1, 0x11, V4 + PORTS + TLV + b"\4\0\2a"),
    v2(1, 0x31, bytes(216) + b"\4\xff\xff"),
]


@pytest.mark.parametrize("header", BAD)
def test_whatever_else_comes_is_refused(header):
    """A bad header is refused, never taken for data of the protocol."""
    with pytest.raises(Refusal):
        ProxyHeaderParser().feed(header + b" " * 200)


def test_a_header_that_was_changed_on_its_way_is_refused():
    """One with a CRC32C in which a bit differs, of an address, a TLV or the checksum."""
    kind = len(SUMMED) - 11  # another type of TLV would be no checksum
    for at in {*range(len(SIGNATURE_V2) + 4, len(SUMMED))} - {kind}:
        changed = SUMMED[:at] + bytes([SUMMED[at] ^ 1]) + SUMMED[at + 1 :]
        with pytest.raises(Refusal):
            ProxyHeaderParser().feed(changed)


# Who the client is


def said(tlvs: str) -> bytes:
    """With these, in hex, behind the addresses."""
    return v2(1, 0x11, V4 + PORTS + bytes.fromhex(tlvs))


CERTIFIED = "20 000d {:02x} {:08x} 22 0005 7765622d31"
CLIENTS = {
    # HAProxy 2.6.12 sent the first three: `mode tcp`, and a `bind` with `verify optional`
    "a certificate": (
        bytes.fromhex(
            "0d0a0d0a000d0a515549540a211100267f0000017f00000199c844242000170700000000"
            "210007544c5376312e332200057765622d31"
        ),
        (True, "CN=web-1"),
    ),
    "none": (
        bytes.fromhex(
            "0d0a0d0a000d0a515549540a2111001e7f0000017f00000199ce442420000f0100000000"
            "210007544c5376312e33"
        ),
        (True, None),
    ),
    "one that is not good": (
        bytes.fromhex(
            "0d0a0d0a000d0a515549540a2111002c7f0000017f00000185544425030004449d1dab20"
            "00160700000015210007544c5376312e332200046576696c"
        ),
        (True, None),
    ),
    "a session that had one": (said(CERTIFIED.format(5, 0)), (True, "CN=web-1")),
    "no TLS": (said(CERTIFIED.format(6, 0)), (False, None)),
    "a name without a certificate": (said(CERTIFIED.format(1, 0)), (True, None)),
    "a name that looks like more": (
        said(f"20 0012 07 00000000 22 000a {b'a,O=b+c=d '.hex()}"),
        (True, r"CN=a\,O=b\+c=d\ "),
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_balancer_says_who_its_client_is(client):
    """By a certificate that is good; nobody is asked where its word does not count."""
    header, (behind_tls, name) = CLIENTS[client]
    found = ProxyHeaderParser(names=True).feed(header + b"2W")
    assert found is not None
    assert found.behind_tls == behind_tls
    assert (found.client and found.client.rfc4514_string()) == name
    assert found.rest == b"2W"
    unread = ProxyHeaderParser().feed(header)
    assert unread is not None
    assert (unread.behind_tls, unread.client) == (False, None)


@pytest.mark.parametrize(
    "tlvs",
    [
        "20 0004 07 000000",
        "20 0007 07 00000000 22 00",
        "20 000c 07 00000000 22 0005 7765622d",
        "20 0009 07 00000000 22 0001 ff",
        "20 0008 07 00000000 22 0000",
        f"20 0049 07 00000000 22 0041 {65 * '61'}",
    ],
)
def test_a_client_that_can_not_be_read_is_refused(tlvs):
    """Cut off, not UTF-8, empty, or longer than a common name may be."""
    with pytest.raises(Refusal, match="PROXY v2 header with a"):
        ProxyHeaderParser(names=True).feed(said(tlvs))


def test_a_long_version_1_header_is_refused():
    """107 bytes without an end of line are enough."""
    header = ProxyHeaderParser()
    assert header.feed(b"PROXY " + b"x" * 100) is None
    with pytest.raises(Refusal, match="more than 107 bytes, limit 107"):
        header.feed(b"x")


def test_a_long_version_2_header_is_refused_by_its_length():
    """A declared length over the limit is refused before the bytes come."""
    with pytest.raises(Refusal, match="65551 bytes"):
        ProxyHeaderParser().feed(SIGNATURE_V2 + b"\x21\x11\xff\xff")


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", SIGNATURE_V2]))
def test_nothing_but_a_refusal_comes_out(data, head):
    """Any bytes are a header, too short for one, or refused."""
    with suppress(Refusal):
        ProxyHeaderParser().feed(head + data)


def test_trust_is_by_network():
    """An address is trusted if one of the networks holds it."""
    trust = TrustedNetworks(["10.0.0.0/8", "2001:db8::/32"])
    assert "10.1.2.3" in trust
    assert "2001:db8::9" in trust
    assert "11.1.2.3" not in trust
    assert "::1" not in trust
    assert "unix" not in trust
