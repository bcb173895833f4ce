"""Classes of our own in Java, compiled when a job starts.

Java runs them on executors, where nothing is installed.  So they are compiled with the
compiler that Spark itself uses for its queries (Janino, one of its jars), and Spark hands them
out as a jar.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_loaders: dict[tuple[str, str], Any] = {}
"""Loaders of classes by the application of Spark and the name."""


def compiled(spark: SparkSession, name: str, code: Sequence[str]) -> Any:
    """The loader of the classes in *code*, which tasks get as a jar of this *name*.

    They are compiled once for an application of Spark, whose Java has run them warm.
    """
    key = spark.sparkContext.applicationId, name
    if key not in _loaders:
        _loaders[key] = _compile(spark, name, code)
    return _loaders[key]


def _compile(spark: SparkSession, name: str, code: Sequence[str]) -> Any:
    from pyspark import SparkFiles

    java: Any = spark._jvm  # noqa: SLF001
    loader = spark._jsparkSession.getClass().getClassLoader()  # noqa: SLF001
    jar = Path(SparkFiles.getRootDirectory()) / "gateway" / f"{name}.jar"
    jar.parent.mkdir(exist_ok=True)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as classes:
        for source in code:
            compiler = java.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(source)
            for one, content in compiler.getBytecodes().items():
                classes.writestr(f"{one.replace('.', '/')}.class", bytes(content))
            loader = compiler.getClassLoader()
    if not jar.exists():  # else of another process, and tasks may be reading it
        jar.write_bytes(made.getvalue())
        spark._jsc.addJar(jar.as_uri())  # noqa: SLF001
    return loader


def register(
    spark: SparkSession,
    name: str,
    code: Sequence[str],
    kind: str,
    given: Sequence[Any],
    result: str,
) -> None:
    """Make a function of this *name* of the class *kind*, which is in the last *code*.

    Its constructor is *given* these; *result* is the function's type as Spark's JSON has it.
    """
    java: Any = spark._jvm  # noqa: SLF001
    session: Any = spark._jsparkSession  # noqa: SLF001
    # By reflection: Py4J takes classes of the same name, from two sessions, for one.
    loader = compiled(spark, name, code)
    (constructor,) = loader.loadClass(kind).getConstructors()
    instance = constructor.newInstance(array(spark, java.Object, given))
    session.udf().register(name, instance, session.parseDataType(result))


def array(spark: SparkSession, kind: Any, values: Sequence[Any]) -> Any:
    """An array of Java's."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    made = gateway.new_array(kind, len(values))
    for number, value in enumerate(values):
        made[number] = value
    return made
