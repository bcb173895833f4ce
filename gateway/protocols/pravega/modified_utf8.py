"""Java's modified UTF-8, in which the protocol's strings are encoded.

It differs from UTF-8 in two points: NUL is `C0 80`, and a character above U+FFFF is a
surrogate pair of three bytes each.  Rust clients write plain UTF-8, so both forms are
decoded; the modified one is written.
"""

from __future__ import annotations

from gateway.sdk.interfaces import Refusal

_MOST_BYTES = 0xFFFF


def decode(raw: bytes) -> str:
    """The string; raises `Refusal` for bytes that are UTF-8 in neither form."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    try:
        units = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeError:
        raise Refusal("text that is not UTF-8") from None


def encode(text: str) -> bytes:
    """The bytes, with their number in two bytes before them.

    Raises `Refusal` if they are too many: what came as plain UTF-8 may be shorter.
    """
    if text.isascii():
        raw = text.encode()
    else:
        paired = text.encode("utf-16-le", "surrogatepass")
        units = memoryview(paired).cast("H")
        raw = "".join(map(chr, units)).encode("utf-8", "surrogatepass")
    raw = raw.replace(b"\0", b"\xc0\x80")
    if len(raw) > _MOST_BYTES:
        raise Refusal(f"text of {len(raw)} bytes", limit=_MOST_BYTES)
    return len(raw).to_bytes(2) + raw
