"""Pomelo's wire format: decodes bytes to packages and messages, and encodes them.

    package   u8 type, u24 size of the body, body
    1  <->    handshake, JSON
    2  ->     handshake acknowledged, empty
    3  <->    heartbeat, empty
    4  <->    data: a message
    5  <-     kick: {"reason": …}, then FIN

    message   u8 flag, id (request, response), route (all but response), body
    flag      bit 0: the route is a code of the dictionary, u16; else u8 size, UTF-8
              bits 1-3: 0 request, 1 notify, 2 response, 3 push; bit 4: body is zlib
              bit 5 (pitaya, in responses): an error
    id        varint, low groups first, below 2^32; some clients put the high group
              first, which shows where the last group is 0 (`HIGH_FIRST`)

Numbers are big-endian.  No I/O, no clock, no dictionary.  For speed there is no object
for each message: `Decoder.take` returns a *run*, all adjacent plain messages, which is
later stored as it came.

Everything is refused on its declared size, before it is buffered.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gateway.protocols.pomelo.text import ascii_json
from gateway.sdk import native
from gateway.sdk.interfaces import Refusal
from gateway.sdk.varint import varint

HANDSHAKE, ACK, HEARTBEAT, DATA, KICK = 1, 2, 3, 4, 5

#: Largest body that a package can declare.
MOST_BYTES = 0xFFFFFF

_PIECE_BYTES = 1 << 16
_REQUEST, _NOTIFY, _RESPONSE, _PUSH = 0, 1, 2, 3
_BY_CODE, _ZIPPED, _ERROR = 0x01, 0x10, 0x20
_MOST_ID = 0xFFFFFFFF
HIGH_FIRST = 1 << 32
"""A mark on an id whose last group, low groups first, is 0 and not its only one.

No client writes such an id with low groups first, so it is read with the high group first,
and answered so."""
_U32 = struct.Struct(">I")
_HEAD = struct.Struct(">IB")
"""The head of a package with a message: type and size, and the message's flag."""
_DATA_HEAD = DATA << 24

Route = int | bytes
"""A route as on the wire: a code of the dictionary, or a name in UTF-8."""

Found = tuple[int, Route, int, int]
"""A request or a notify: its id (0 for a notify), its route, and where its body begins
and ends in the bytes that were scanned."""

Sums = tuple[int, int, int, list[int], list[Route]]
"""Sums of messages: where they end, their number, the octets of their bodies, ids, routes.

Ids are those of the requests among them; a route is listed where it differs from the one
before."""


@dataclass(slots=True)
class Package:
    kind: int
    body: bytes


@dataclass(slots=True)
class Messages:
    """A run of data packages, as they came: `buffer[start:stop]`."""

    buffer: bytes
    start: int
    stop: int
    sums: Sums
    zipped: bool = False
    """Whether it is a single message whose flag says that its body is compressed."""
    _found: list[Found] | None = None

    @property
    def found(self) -> list[Found]:
        if self._found is None:
            self._found = []
            scan(self.buffer, self.start, self.stop, MOST_BYTES, self._found)
        return self._found


@dataclass(slots=True)
class Message:
    id: int
    """The id of the request that it answers; 0 for a push."""
    route: Route | None
    """None in a response."""
    body: bytes
    error: bool
    """Pitaya's error bit."""


# To bytes


def package(kind: int, body: bytes = b"") -> bytes:
    """A package.  Raises ValueError if the body is too long."""
    if len(body) > MOST_BYTES:
        raise ValueError(f"package of {len(body)} bytes, {MOST_BYTES} at most")
    return _U32.pack(kind << 24 | len(body)) + body


def kick(reason: str) -> bytes:
    """A kick package, with a body, because browsers' clients throw without one."""
    return package(KICK, ascii_json({"reason": reason}))


def refusal(
    rule: str, *, limit: str | int | None = None, key: str | None = None
) -> Refusal:
    """A `Refusal` whose reply is a kick that says why."""
    why = Refusal(rule, limit=limit, key=key)
    why.reply = kick(str(why))
    return why


def request(number: int, route: int | str, body: bytes) -> bytes:
    """A request in its package; *route* is a name or a code of the dictionary."""
    return _data(_REQUEST, _octets(number), _route(route), body)


def notify(route: int | str, body: bytes) -> bytes:
    return _data(_NOTIFY, b"", _route(route), body)


def push(route: int | str, body: bytes) -> bytes:
    return _data(_PUSH, b"", _route(route), body)


def response(number: int, body: bytes, *, error: bool = False) -> bytes:
    """A response in its package; only pitaya's clients know the *error* bit."""
    flag = b"\x24" if error else b"\x04"
    head = flag + _octets(number)
    return _U32.pack(_DATA_HEAD | len(head) + len(body)) + head + body


def _octets(number: int) -> bytes:
    """An id as it came, or comes."""
    if number < HIGH_FIRST:
        return varint(number)
    number -= HIGH_FIRST
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))


def _data(kind: int, number: bytes, route: tuple[int, bytes], body: bytes) -> bytes:
    by_code, name = route
    return package(DATA, bytes((kind << 1 | by_code,)) + number + name + body)


def _route(route: int | str) -> tuple[int, bytes]:
    if isinstance(route, int):
        return _BY_CODE, route.to_bytes(2)
    name = route.encode()
    if len(name) > 0xFF:
        raise ValueError(f"route of {len(name)} bytes, 255 at most: {route!r}")
    return 0, bytes((len(name),)) + name


# From bytes


def _number(buffer: bytes, at: int, stop: int) -> tuple[int, int]:
    """The message id at *at*, and where it ends."""
    number = high_first = mark = 0
    low = at < stop and buffer[at] & 0x7F
    for shift in range(0, 35, 7):
        if at == stop:
            raise refusal("message ends inside its id")
        byte = buffer[at]
        at += 1
        number |= (byte & 0x7F) << shift
        high_first = high_first << 7 | byte & 0x7F
        if byte < 0x80:
            if low and not byte and high_first <= _MOST_ID:
                number, mark = high_first, HIGH_FIRST
            if number > _MOST_ID:
                break
            return number + mark, at
    raise refusal(f"message id above {_MOST_ID}")


def scan(
    buffer: bytes,
    at: int,
    end: int,
    most: int,
    found: list[Found],
    most_found: int = MOST_BYTES,
) -> int:
    """Append the plain requests and notifies from *at* on to *found*, *most_found* of them.

    Returns where they end: at a package that is incomplete, is no data package, or has
    more than *most* bytes, or at any message that is not plain.  This is the only loop
    that runs once for each message.
    """
    if native.kernel:
        return int(native.kernel.scan(buffer, at, end, most, found, most_found))
    add = found.append
    head = _HEAD.unpack_from
    last = end - 5
    for _ in range(most_found):
        if at > last:
            break
        size, flag = head(buffer, at)
        size -= _DATA_HEAD
        if not 0 < size <= most:
            break
        body = at + 5
        stop = at + 4 + size
        if stop > end:
            break
        number = 0
        if flag < 2:  # a request
            if body >= stop:
                break
            number = buffer[body]
            body += 1
            if number > 0x7F:
                if body < stop and 0 < buffer[body] < 0x80:
                    number = number & 0x7F | buffer[body] << 7
                    body += 1
                else:
                    try:
                        number, body = _number(buffer, body - 1, stop)
                    except Refusal:
                        break
        elif flag > 3:
            break
        if body + 1 > stop:
            break
        route: Route
        if flag & 1:
            if body + 2 > stop:
                break
            route = buffer[body] << 8 | buffer[body + 1]
            body += 2
        else:
            name = body + 1
            body = name + buffer[body]
            if body > stop:
                break
            route = buffer[name:body]
        add((number, route, body, stop))
        at = stop
    return at


def sums(
    buffer: bytes, at: int, end: int, most: int, most_found: int
) -> tuple[Sums, list[Found] | None]:
    """The `Sums` of what `scan` finds from *at* on; and its messages, if each was looked at."""
    if native.kernel:
        return native.kernel.sums(buffer, at, end, most, most_found), None
    found: list[Found] = []
    return _summed(scan(buffer, at, end, most, found, most_found), found), found


def _summed(end: int, found: list[Found]) -> Sums:
    octets = 0
    ids: list[int] = []
    routes: list[Route] = []
    last: Route | None = None
    for number, route, at, stop in found:
        octets += stop - at
        if number:
            ids.append(number)
        if route != last:
            routes.append(route)
            last = route
    return end, len(found), octets, ids, routes


def _single(buffer: bytes, start: int, at: int, stop: int) -> Messages:
    """The message at *at*, which is not plain.  Refuses what clients may not send."""
    if at == stop:
        raise refusal("message without a flag")
    flag = buffer[at]
    kind = flag >> 1 & 7
    if kind in (_RESPONSE, _PUSH):
        raise refusal(
            "response from a client" if kind == _RESPONSE else "push from a client"
        )
    if kind > _PUSH:
        raise refusal(f"message of unknown type {kind}")
    if flag & 0xE0:
        raise refusal(f"message with unknown flag bits 0x{flag & 0xE0:02x}")
    at += 1
    number = 0
    if kind == _REQUEST:
        number, at = _number(buffer, at, stop)
    route, at = _read_route(buffer, at, stop, by_code=flag & _BY_CODE != 0)
    found = [(number, route, at, stop)]
    zipped = flag & _ZIPPED != 0
    return Messages(buffer, start, stop, _summed(stop, found), zipped, found)


def zipped(buffer: bytes, at: int, end: int) -> Found:
    """The message in the package at *at*, whose body is compressed.

    Raises ValueError if there is no such package before *end*.
    """
    stop = at + 4 + int.from_bytes(buffer[at + 1 : at + 4])
    if stop > end or buffer[at] != DATA:
        raise ValueError("no data package")
    run = _single(buffer, at, at + 4, stop)
    if not run.zipped:
        raise ValueError("message that is not compressed")
    return run.found[0]


def _read_route(
    buffer: bytes, at: int, stop: int, *, by_code: bool
) -> tuple[Route, int]:
    if by_code:
        if at + 2 <= stop:
            return int.from_bytes(buffer[at : at + 2]), at + 2
    elif at < stop:
        end = at + 1 + buffer[at]
        if end <= stop:
            return buffer[at + 1 : end], end
    raise refusal("message ends inside its route")


def message(body: bytes) -> Message:
    """A server's message.  Raises ValueError if it is neither response nor push."""
    flag = body[0] if body else 0xFF
    kind = flag >> 1 & 7
    number, route, at = 0, None, 1
    try:
        if kind == _RESPONSE:
            number, at = _number(body, 1, len(body))
        elif kind == _PUSH:
            by_code = flag & _BY_CODE != 0
            route, at = _read_route(body, 1, len(body), by_code=by_code)
        else:
            raise ValueError(f"message with flag 0x{flag:02x} from a server")
    except Refusal as why:
        raise ValueError(why.rule) from None
    return Message(number, route, body[at:], flag & _ERROR != 0)


class Packages:
    """Decodes a stream, in any slicing, to packages.  Raises `Refusal` only."""

    __slots__ = ("_at", "_buffer", "_have", "_need", "_tail", "control_bytes",
                 "data_bytes")  # fmt: skip

    def __init__(self, data_bytes: int, control_bytes: int) -> None:
        self.data_bytes = min(data_bytes, MOST_BYTES)
        """The largest body of a data package."""
        self.control_bytes = control_bytes
        """The largest body of any other package."""
        self._buffer = b""
        self._at = 0
        # An incomplete package, in pieces: one buffer that grows is moved again and
        # again, and leaves holes in the heap when many connections have one.
        self._tail: list[bytes | bytearray] | None = None
        self._have = 0  # bytes of it
        self._need = 0  # it is looked at again when it has so many

    @property
    def held_bytes(self) -> int:
        return len(self._buffer) + (0 if self._tail is None else self._have)

    def feed(self, data: bytes) -> None:
        tail = self._tail
        if tail is None:
            at = self._at
            if at < len(self._buffer):
                data = self._buffer[at:] + data
            self._buffer = data
        else:
            self._have += len(data)
            last = tail[-1]
            if isinstance(last, bytearray) and len(last) < _PIECE_BYTES:
                last += data
            else:
                tail.append(data if len(data) >= _PIECE_BYTES else bytearray(data))
            if self._have < self._need:
                return
            self._buffer = b"".join(tail)
            self._tail = None
        self._at = 0

    def clear(self) -> None:
        self._buffer = b""
        self._at = 0
        self._tail = None

    @property
    def more(self) -> bool:
        """There is input that was not looked at."""
        return self._at < len(self._buffer)

    def _head(self) -> tuple[int, int, int] | None:
        """Type, first byte and end of the next package's body, once it has arrived."""
        at = self._at
        have = len(self._buffer) - at
        if not have:
            self._buffer = b""
            self._at = 0
            return None
        kind = self._buffer[at]
        if not HANDSHAKE <= kind <= KICK:
            raise refusal(f"not Pomelo: package of type {kind}")
        if have < 4:
            self._wait(4)
            return None
        size = int.from_bytes(self._buffer[at + 1 : at + 4])
        self._check(kind, size)
        if have < 4 + size:
            self._wait(4 + size)
            return None
        return kind, at + 4, at + 4 + size

    def _check(self, kind: int, size: int) -> None:
        if kind == DATA:
            limit, key = self.data_bytes, "limits.message_bytes"
        else:
            limit, key = self.control_bytes, "options.handshake_bytes"
        if size > limit:
            raise refusal(f"package of {size} bytes", limit=limit, key=key)

    def _wait(self, need: int) -> None:
        self._need = need
        self._tail = [bytearray(memoryview(self._buffer)[self._at :])]
        self._have = len(self._buffer) - self._at
        self._buffer = b""
        self._at = 0

    def next(self) -> Package | None:
        """The next package; None until more is fed."""
        head = self._head()
        if head is None:
            return None
        kind, at, self._at = head
        return Package(kind, self._buffer[at : self._at])


class Decoder(Packages):
    """Decodes what a client sends."""

    __slots__ = ("most_bytes", "most_run", "open")

    def __init__(self, data_bytes: int, control_bytes: int) -> None:
        super().__init__(data_bytes, control_bytes)
        self.open = False
        """The handshake was acknowledged: messages may come."""
        self.most_run = 1024
        """The most messages in one run."""
        self.most_bytes = MOST_BYTES
        """The most bytes in one run, unless it is one message."""

    def _check(self, kind: int, size: int) -> None:
        if kind == DATA and not self.open:
            raise refusal("message before the handshake was acknowledged")
        super()._check(kind, size)

    def whole(self, data: bytes) -> tuple[Sums, list[Found] | None] | None:
        """`sums` of what arrived, if that is plain messages and nothing else, and nothing
        was there before; None: nothing is changed, `feed` it.
        """
        end = len(data)
        if not self.open or self._buffer or self._tail is not None:
            return None
        if end > self.most_bytes:
            return None
        found = sums(data, 0, end, self.data_bytes, self.most_run)
        return found if found[0][0] == end else None

    def take(self) -> Package | Messages | None:
        """The next package, or run of messages; None until more is fed."""
        buffer, start = self._buffer, self._at
        if self.open:
            end, most = len(buffer), self.data_bytes
            found, each = sums(buffer, start, end, most, self.most_run)
            stop, count, *_ = found
            if count > 1 and stop - start > self.most_bytes:
                found, each = sums(buffer, start, end, most, 1)
                stop = found[0]
            if count:
                if stop < end:
                    self._at = stop
                else:
                    self.clear()
                return Messages(buffer, start, stop, found, _found=each)
        head = self._head()
        if head is None:
            return None
        kind, at, stop = head
        self._at = stop
        if stop == len(buffer):
            self.clear()
        if kind == DATA:
            return _single(buffer, start, at, stop)
        return Package(kind, buffer[at:stop])
