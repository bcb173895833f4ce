r"""Parser of the PROXY header that a load balancer puts before a connection; no I/O.

Version 1 is a line, `PROXY TCP4 192.0.2.1 192.0.2.9 40000 5044\r\n`.  Version 2 is a
signature, a version and command byte, a family byte, a length, addresses and
type-length-values (TLVs).  Of these the checksum is verified.  That of TLS is read if the
balancer's word is taken for who its client is:

    0x20  length  client bits  verify, 0 = the certificate is good
                  0x22  length  common name of the client's certificate

Others are skipped, and so is all behind the head of a header of command LOCAL, or of no
known family.  Specification: haproxy.org, proxy-protocol.txt.

Twisted has a parser too, but it drops a connection whose first read is shorter than
8 bytes (v1) or 16 (v2), and it knows no trusted sources.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

import google_crc32c
from cryptography import x509

from gateway.sdk.interfaces import Refusal

SIGNATURE_V1 = b"PROXY "
SIGNATURE_V2 = b"\r\n\r\n\0\r\nQUIT\n"

_MAX_V1_BYTES = 107
"""Bytes of the line with its CRLF, as the specification says."""
_MAX_V2_BYTES = 4096
"""Addresses are at most 216 bytes; the rest is room for TLVs."""
_KEY = "proxy_protocol"
_SHORT_V2 = "PROXY v2 header too short for its addresses"

_PARTS_V2 = struct.Struct("!12sBBH")
_IPV4_V2 = struct.Struct("!4s4sHH")
_IPV6_V2 = struct.Struct("!16s16sHH")
_UNIX_BYTES_V2 = 216
"""Two paths."""
_TLV = struct.Struct("!BH")
_CRC32C = 0x03
"""The type of the checksum: of the whole header, with zeros in this one's place."""
_TLS = 0x20
_TLS_HEAD = struct.Struct("!BL")
_CLIENT_TLS, _CLIENT_CERTIFICATE = 0x01, 0x02 | 0x04
"""Bits: the client speaks TLS; it has shown a certificate, now or when the session began."""
_COMMON_NAME = 0x22


class ProxyHeader(NamedTuple):
    """The content of a whole header."""

    peer: tuple[str, int] | None
    """Address and port of the real peer; None: the connection's own is the real one."""
    rest: bytes
    """The bytes behind the header."""
    behind_tls: bool = False
    """The client speaks TLS with the balancer, whose word for it is asked for."""
    client: x509.Name | None = None
    """The name in the certificate that it has shown there."""


class ProxyHeaderParser:
    """Feed it any slicing of a connection's first bytes until the header is whole.

    With *names* it reads who the client is.
    """

    __slots__ = ("_head", "_names")

    def __init__(self, *, names: bool = False) -> None:
        self._head = b""
        self._names = names

    def feed(self, data: bytes) -> ProxyHeader | None:
        """The header, or None if it needs more.  Raises `Refusal`."""
        head = self._head = self._head + data
        if head.startswith(SIGNATURE_V2):
            return _version_2(head, names=self._names)
        if head.startswith(SIGNATURE_V1):
            return _version_1(head)
        if SIGNATURE_V1.startswith(head) or SIGNATURE_V2.startswith(head):
            return None
        raise Refusal(f"no PROXY header but {head[:16]!r}", key=_KEY)


def _version_1(head: bytes) -> ProxyHeader | None:
    end = head.find(b"\r\n", 0, _MAX_V1_BYTES)
    if end < 0 and len(head) >= _MAX_V1_BYTES:
        raise Refusal(
            f"PROXY v1 header of more than {_MAX_V1_BYTES} bytes", limit=_MAX_V1_BYTES
        )
    if end < 0:
        return None
    line, rest = head[:end], head[end + 2 :]
    words = line.split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(None, rest)
    kind = {b"TCP4": IPv4Address, b"TCP6": IPv6Address}.get(words[1])
    try:
        if kind is None or len(words) != 6:
            raise ValueError(words)
        source, _ = (kind(word.decode("ascii")) for word in words[2:4])
        port, _ = (_port(word) for word in words[4:6])
    except ValueError:
        raise Refusal(f"bad PROXY v1 header {line!r}", key=_KEY) from None
    return ProxyHeader((str(source), port), rest)


def _port(word: bytes) -> int:
    if not (word.isdigit() and len(word) <= 5 and int(word) <= 0xFFFF):
        raise ValueError(word)
    return int(word)


def _version_2(head: bytes, *, names: bool) -> ProxyHeader | None:
    if len(head) < _PARTS_V2.size:
        return None
    _, command, family, length = _PARTS_V2.unpack_from(head)
    if command >> 4 != 2 or command & 15 > 1:
        raise Refusal(f"PROXY v2 header with version and command {command:#04x}")
    end = _PARTS_V2.size + length
    if end > _MAX_V2_BYTES:
        raise Refusal(f"PROXY v2 header of {end} bytes", limit=_MAX_V2_BYTES)
    if len(head) < end:
        return None
    rest = head[end:]
    if command & 15 == 0 or family == 0x00:  # LOCAL; unspecified
        return ProxyHeader(None, rest)
    peer, at = _peer_v2(family, head[:end])
    header = ProxyHeader(peer, rest)
    for kind, begin, size in _tlvs(head, at, end):
        if kind == _CRC32C:
            _verify(head[:end], begin, size)
        elif kind == _TLS and names:
            header = ProxyHeader(peer, rest, *_client(head, begin, begin + size))
    return header


def _peer_v2(family: int, header: bytes) -> tuple[tuple[str, int] | None, int]:
    """The peer, and where the TLVs begin."""
    at = _PARTS_V2.size
    try:
        if family == 0x11:
            source, _, port, _ = _IPV4_V2.unpack_from(header, at)
            return (str(IPv4Address(source)), port), at + _IPV4_V2.size
        if family == 0x21:
            source, _, port, _ = _IPV6_V2.unpack_from(header, at)
            return (str(IPv6Address(source)), port), at + _IPV6_V2.size
    except struct.error:
        raise Refusal(_SHORT_V2) from None
    if family != 0x31:
        raise Refusal(f"PROXY v2 header of family {family:#04x}")
    if len(header) < at + _UNIX_BYTES_V2:
        raise Refusal(_SHORT_V2)
    return None, at + _UNIX_BYTES_V2  # a unix socket, which has no address


def _tlvs(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The TLVs from *at* to *end*: type, where the value begins, and its size."""
    while at < end:
        if end - at < _TLV.size:
            raise Refusal("PROXY v2 header with a part of a TLV at its end")
        kind, size = _TLV.unpack_from(data, at)
        at += _TLV.size
        if size > end - at:
            what = f"a TLV {kind:#04x} of {size} bytes, of which {end - at} are there"
            raise Refusal(f"PROXY v2 header with {what}")
        yield kind, at, size
        at += size


def _client(data: bytes, at: int, end: int) -> tuple[bool, x509.Name | None]:
    """The content of a TLV of TLS: whether the client speaks it, and its name by a good
    certificate.
    """
    if end - at < _TLS_HEAD.size:
        raise Refusal(f"PROXY v2 header with a TLV of TLS of {end - at} bytes")
    client, unverified = _TLS_HEAD.unpack_from(data, at)
    name = None
    for kind, begin, size in _tlvs(data, at + _TLS_HEAD.size, end):
        if kind == _COMMON_NAME:
            name = _name(data[begin : begin + size])
    behind_tls = bool(client & _CLIENT_TLS)
    proved = behind_tls and client & _CLIENT_CERTIFICATE and not unverified
    return behind_tls, name if proved else None


def _name(common: bytes) -> x509.Name:
    try:
        part = x509.NameAttribute(x509.NameOID.COMMON_NAME, common.decode())
    except ValueError:
        raise Refusal(f"PROXY v2 header with a common name {common[:100]!r}") from None
    return x509.Name([part])


def _verify(header: bytes, begin: int, size: int) -> None:
    if size != 4:
        raise Refusal(f"PROXY v2 header with a CRC32C of {size} bytes")
    said = int.from_bytes(header[begin : begin + size])
    if google_crc32c.value(header[:begin] + bytes(4) + header[begin + size :]) != said:
        raise Refusal("PROXY v2 header with a wrong CRC32C")


class TrustedNetworks:
    """Hosts whose PROXY headers are believed: networks in CIDR notation."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ip_network(each, strict=False) for each in networks]

    def __contains__(self, host: object) -> bool:
        try:
            address = ip_address(str(host))
        except ValueError:
            return False
        return any(
            address.version == network.version and address in network
            for network in self._networks
        )
