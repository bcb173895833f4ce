"""VARIANTs that Spark 4.3 wrote, and their strings."""

import pytest

from gateway.audit.variant import look_up

KEYS = ["event", "id", "n", "long", "no", "event.id"]


#: What Spark 4.3 made of a Filebeat event: metadata and value.
SPARK_METADATA = bytes.fromhex(
    "011000090d11182227292d3134383c42494b51406d6574616461746162656174747970657665"
    "7273696f6e4074696d657374616d706167656e746964686f73746e616d656c6f6766696c6570"
    "6174686f66667365746d6573736167656d73737461747573"
)
SPARK_VALUE = bytes.fromhex(
    "060800040507090d0e0f00001e00370071007d009e004a0154015701020301020300090e1521"
    "66696c6562656174115f646f6319382e31352e3061323032362d31312d32315430383a30303a"
    "30302e3030305a020306020300212a3181623232323161353830303861303561366334363437"
    "31353963333234633938352166696c656265617419382e31352e30020108000719686f73742d"
    "3002020a0c00181a02010b0013492f7661722f6c6f672f6170702d302e6c6f670c0040a70000"
    "0077643666653020773437626135207735363933662077613231613120773036663638207761"
    "3735363220776363343265207738353636632077623835376620773730393033207761343861"
    "3220773434663830207734646261622077366263333520776430313833207739323863392077"
    "6134666630207739373565662077643234343720776238613164207762663931382077316337"
    "34392077333362383620776634623163240f0279e3949f9e5e00109401"
)


def metadata(keys: list[str], width: int = 1) -> bytes:
    texts = [key.encode() for key in keys]
    bounds = [sum(map(len, texts[:n])) for n in range(len(texts) + 1)]
    numbers = [len(keys), *bounds]
    head = bytes([1 | (width - 1) << 6])
    return (
        head + b"".join(n.to_bytes(width, "little") for n in numbers) + b"".join(texts)
    )


def short(text: str) -> bytes:
    return bytes([len(text) << 2 | 1]) + text.encode()


def long(text: str) -> bytes:
    return bytes([16 << 2]) + len(text.encode()).to_bytes(4, "little") + text.encode()


def number(value: int, kind: int, size: int) -> bytes:
    return bytes([kind << 2]) + value.to_bytes(size, "little", signed=True)


def members(
    pairs: list[tuple[int, bytes]], *, width: int = 1, large: bool = False
) -> bytes:
    head = bytes([2 | (width - 1) << 2 | (width - 1) << 4 | large << 6])
    out = head + len(pairs).to_bytes(4 if large else 1, "little")
    out += b"".join(key.to_bytes(width, "little") for key, _ in pairs)
    at = 0
    for _, value in pairs:
        out += at.to_bytes(width, "little")
        at += len(value)
    return out + at.to_bytes(width, "little") + b"".join(value for _, value in pairs)


def test_what_spark_wrote():
    """Keys at the top and below, short and long strings, integers."""
    for path, wanted in (
        (("agent", "id"), "b2221a58008a05a6c4647159c324c985"),
        (("@metadata", "beat"), "filebeat"),
        (("log", "file", "path"), "/var/log/app-0.log"),
        (("log", "offset"), "0"),
        (("status",), "404"),
        (("event", "id"), None),
    ):
        found = look_up(SPARK_METADATA, SPARK_VALUE, path)
        assert found == wanted, path
    message = look_up(SPARK_METADATA, SPARK_VALUE, ("message",))
    assert message is not None
    assert len(message) == 167


def test_a_nested_string():
    """The path's string, short or long, or integer as text."""
    inner = members(
        [(1, short("e-17")), (3, long("x" * 70)), (2, number(-300, 4, 2)), (4, b"\x00")]
    )
    value = members([(0, inner), (5, short("dotted"))])
    keys = metadata(KEYS)
    assert look_up(keys, value, ("event", "id")) == "e-17"
    assert look_up(keys, value, ("event", "long")) == "x" * 70
    assert look_up(keys, value, ("event", "n")) == "-300"
    assert look_up(keys, value, ("event.id",)) == "dotted"
    for path in (
        ("event", "no"),
        ("event",),
        ("id",),
        ("nowhere",),
        ("event.id", "id"),
    ):
        assert look_up(keys, value, path) is None


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("large", [False, True])
def test_all_widths(width, large):
    """Offsets and numbers of any width are read."""
    inner = members([(1, short("here"))], width=width, large=large)
    value = members([(0, inner)], width=width, large=large)
    assert look_up(metadata(KEYS, width), value, ("event", "id")) == "here"


def test_no_variant_is_an_error_that_is_known():
    """Bytes that are cut off raise IndexError or give nothing; never anything else."""
    value = members([(0, members([(1, short("e-17"))]))])
    for end in range(len(value)):
        try:
            found = look_up(metadata(KEYS), value[:end], ("event", "id"))
        except IndexError:
            continue
        assert found is None or "e-17".startswith(found)
