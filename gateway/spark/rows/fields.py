"""Values of a payload's JSON by their paths: `Fields.java` as a function of a session.

Java runs it on the executors, where nothing is installed: it is compiled when a job starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from gateway.spark.jvm.compiled import array, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The field of the result that holds the whole payload, null if it is not UTF-8.
TEXT = "text"
#: The field of the result that holds a hash of what the payload says.
CONTENTS = "contents"

#: Each uses those before it.
_SOURCES = [
    Path(__file__).with_name(f"{name}.java")
    for name in ("Instants", "Keys", "Known", "Scan", "Contents", "Is", "Fields")
]
_CLASS = "gateway.spark.Fields"
_IS = "gateway.spark.Is"

#: The field of the result whose bit N says that the conditions of rule N hold.
RULES = "rules"


class Wanted(NamedTuple):
    """A text that a value is to be, or an expression that is to be found in it."""

    text: str
    expression: bool
    """Whether that is an expression of RE2, to be found in the value."""


class Asked(NamedTuple):
    """A condition of a rule."""

    rule: int
    path: int
    """The number of the path that leads to the value."""
    wanted: Wanted


def field(number: int) -> str:
    """The field of the result that holds the value of the path with this number."""
    return f"p{number}"


def micros(number: int) -> str:
    """The field of the result that holds microseconds since 1970, for that path."""
    return f"i{number}"


def elements(number: int) -> str:
    """The field of the result that holds the elements of a list, for that path."""
    return f"l{number}"


def function(
    spark: SparkSession,
    paths: Sequence[Sequence[str]],
    instants: Sequence[int] = (),
    *,
    lists: Sequence[int] = (),
    contents: bool = False,
    rules: Sequence[Asked] = (),
    columns: int | None = None,
) -> str:
    """A function's name in SQL: a payload to a struct of `TEXT`, a `field` per path,
    and `micros` for the paths with the numbers *instants*.  Paths with the numbers *lists* have
    `elements`, too.  With *contents* it has `CONTENTS`, and with *rules* `RULES`.

    A path is the keys that lead to a value, each of an object in the one before.  Some
    that follow each other may be one key of the JSON, joined by dots: ECS allows that at
    any level.  Of several ways in one payload that with the shortest key counts, at the
    first level where they differ.  Values are the text that they have in the JSON, lists
    and objects without blanks; an object that another path leads through is no value.
    `micros` are those of an instant as RFC 3339 and ISO 8601 write it (`Instants.java`),
    and null for whatever else the value is.  `elements` are texts, as `field` has values; of
    what is no list there is one, and of an object there are none: null.  `CONTENTS` is the same for payloads that
    differ in the order of keys and in blanks between parts alone.  A condition of a list is
    one of its elements, and no object has any.  Paths behind the first *columns* are those of
    rules alone, which change no other value.
    """
    of_columns = len(paths) if columns is None else columns
    asked = paths, instants, lists, contents, *([rules, of_columns] if rules else [])
    code = [source.read_text("utf-8") for source in _SOURCES]
    name = f"gateway_fields_{crc32(repr((code, *asked)).encode()):08x}"
    if not spark.catalog.functionExists(name):
        java: Any = spark._jvm  # noqa: SLF001
        given = [
            array(spark, java.String, [key for path in paths for key in path]),
            array(spark, java.int, [len(path) for path in paths]),
            array(spark, java.int, instants),
            *(array(spark, java.int, lists), contents, of_columns),
            array(spark, java.int, [one.rule for one in rules]),
            array(spark, java.int, [one.path for one in rules]),
            array(spark, java.String, [one.wanted.text for one in rules]),
            array(spark, java.boolean, [one.wanted.expression for one in rules]),
        ]
        names = [TEXT, *map(field, range(len(paths)))]
        result = StructType(
            [StructField(one, StringType()) for one in names]
            + [StructField(micros(number), LongType()) for number in instants]
            + [StructField(elements(one), ArrayType(StringType())) for one in lists]
            + [StructField(CONTENTS, LongType())] * contents
            + [StructField(RULES, LongType())] * bool(rules)
        )
        register(spark, name, code, _CLASS, given, result.json())
    return name


def judge(spark: SparkSession, wanted: Wanted) -> str:
    """A function's name in SQL: a text to whether it is *wanted*, which null is not."""
    code = [Path(__file__).with_name("Is.java").read_text("utf-8")]
    name = f"gateway_is_{crc32(repr((code, wanted)).encode()):08x}"
    if not spark.catalog.functionExists(name):
        register(spark, name, code, _IS, list(wanted), '"boolean"')
    return name
