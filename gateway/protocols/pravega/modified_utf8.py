"""Java's modified UTF-8, in which the protocol's strings are encoded.

It differs from UTF-8 in two points: NUL is `C0 80`, and a character above U+FFFF is a
surrogate pair of three bytes each.  Rust clients write plain UTF-8, so both forms are
decoded; the modified one is written.
"""

from __future__ import annotations


class NotText(ValueError):
    """Bytes that are UTF-8 in neither form, or a string of more than 65535 bytes."""


def decode(raw: bytes) -> str:
    """The string; raises `NotText`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    try:
        units = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeError:
        raise NotText("text that is not UTF-8") from None


def encode(text: str) -> bytes:
    """The bytes, without a length; raises `NotText` if they are more than 65535."""
    if text.isascii():
        raw = text.encode()
    else:
        paired = text.encode("utf-16-le", "surrogatepass")
        units = memoryview(paired).cast("H")
        raw = "".join(map(chr, units)).encode("utf-8", "surrogatepass")
    raw = raw.replace(b"\0", b"\xc0\x80")
    if len(raw) > 0xFFFF:
        raise NotText(f"text of {len(raw)} bytes, limit 65535")
    return raw
