"""Values of a payload's JSON by their paths: `Fields.java` as a function of a session.

Java runs it on the executors, where nothing is installed: it is compiled once per
session with the compiler that Spark itself uses for its queries (Janino, one of its
jars), and Spark hands the classes out as a jar.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pyspark import SparkFiles
from pyspark.sql.types import StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TEXT", "field", "function"]

#: The field of the result that holds the whole payload, null if it is not UTF-8.
TEXT = "text"

_SOURCE = Path(__file__).with_name("Fields.java")
_CLASS = "gateway.spark.Fields"


def field(number: int) -> str:
    """The field of the result that holds the value of the path with this number."""
    return f"p{number}"


def function(spark: SparkSession, paths: Sequence[str]) -> str:
    """A function's name in SQL: a payload to a struct of `TEXT` and a `field` per path.

    A path is keys joined by dots.  It leads to a value in an object in an object, or to
    one under a key with dots in it; the first counts before the second.  Values are the
    text that they have in the JSON, lists and objects without blanks; an object that
    another path leads through is no value.
    """
    code = _SOURCE.read_bytes()
    name = f"gateway_fields_{crc32(repr((code, paths)).encode()):08x}"
    if not spark.catalog.functionExists(name):
        _register(spark, name, code.decode(), paths)
    return name


def _register(spark: SparkSession, name: str, code: str, paths: Sequence[str]) -> None:
    java: Any = spark._jvm  # noqa: SLF001
    session: Any = spark._jsparkSession  # noqa: SLF001
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(session.getClass().getClassLoader())
    compiler.cook(code)
    jar = Path(SparkFiles.getRootDirectory()) / "gateway" / f"{name}.jar"
    jar.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(jar, "w") as classes:
        for one, content in compiler.getBytecodes().items():
            classes.writestr(f"{one.replace('.', '/')}.class", bytes(content))
    spark._jsc.addJar(jar.as_uri())  # noqa: SLF001
    # By reflection: Py4J takes classes of the same name, from two sessions, for one.
    (constructor,) = compiler.getClassLoader().loadClass(_CLASS).getConstructors()
    asked = _array(spark, java.String, paths)
    made = constructor.newInstance(_array(spark, java.Object, [asked]))
    columns = [TEXT, *map(field, range(len(paths)))]
    result = StructType([StructField(column, StringType()) for column in columns])
    kind = session.parseDataType(result.json())
    session.udf().register(name, made, kind)


def _array(spark: SparkSession, kind: Any, values: Sequence[Any]) -> Any:
    """Of Java."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    made = gateway.new_array(kind, len(values))
    for number, value in enumerate(values):
        made[number] = value
    return made
