"""Classes of our own in Java, compiled once for each Spark and Java.

Java runs them on executors, where nothing is installed.  So they are compiled with the
compiler that Spark itself uses for its queries (Janino, one of its jars), and Spark hands them
out as a jar.  That takes seconds where Java has just begun, and so the jar is kept in the
user's cache, beside the archive of Spark's own classes (`classes`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.spark.jvm import cache
from gateway.spark.jvm.classes import spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = "gateway-classes-{}.jar"
_loaders: dict[tuple[str, str], Any] = {}
"""Loaders of classes by the application of Spark and the name of the jar."""
_makers: dict[str, str] = {}
"""The Spark and the Java of each application of Spark."""


def compiled(spark: SparkSession, code: Sequence[str]) -> Any:
    """The loader of the classes in *code*, which tasks get as a jar.

    Each of *code* may use those before it.  An application of Spark has them once, so that
    its Java has run them warm.  Raises what Spark raises, and OSError.
    """
    name = _NAME.format(
        hashlib.sha256("\0".join([_made_by(spark), *code]).encode()).hexdigest()[:12]
    )
    key = spark.sparkContext.applicationId, name
    if key not in _loaders:
        _loaders[key] = _load(spark, _jar(spark, name, code))
    return _loaders[key]


def _made_by(spark: SparkSession) -> str:
    """The Spark and the Java that classes are compiled with."""
    jvm: Any = spark._jvm  # noqa: SLF001
    application = spark.sparkContext.applicationId
    if application not in _makers:
        release = jvm.java.lang.System.getProperty("java.version")
        jars = cache.told_by(spark_jars())
        _makers[application] = f"{spark.version} {release} {jars}"
    return _makers[application]


def _load(spark: SparkSession, jar: Path) -> Any:
    """The loader of a jar's classes, which tasks get as well."""
    jvm: Any = spark._jvm  # noqa: SLF001
    url = jvm.java.net.URL
    loader = spark._jsparkSession.getClass().getClassLoader()  # noqa: SLF001
    spark._jsc.addJar(jar.as_uri())  # noqa: SLF001
    return jvm.java.net.URLClassLoader(array(spark, url, [url(jar.as_uri())]), loader)


def _jar(spark: SparkSession, name: str, code: Sequence[str]) -> Path:
    """The jar of the classes in *code*, in the folder of Spark's application."""
    from pyspark import SparkFiles

    jar = Path(SparkFiles.getRootDirectory()) / "gateway" / name
    jar.parent.mkdir(exist_ok=True)
    if jar.exists():  # of another process, and tasks may be reading it
        return jar
    ours = cache.folder(os.environ)
    made = None if ours is None else _kept(ours / name)
    if made is None:
        made = _classes(spark, code)
        # Where it can not be kept, as on a disk that is full, it is made again.
        with contextlib.suppress(OSError):
            if ours is not None:
                cache.forget(ours, _NAME.format("*"))
                _put(made, ours / name)
    _put(made, jar)
    return jar


def _kept(path: Path) -> bytes | None:
    """The jar, if it is there and whole."""
    try:
        made = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(made)) as classes:
            whole = classes.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return None
    cache.used(path)
    return made if whole else None


def _put(content: bytes, path: Path) -> None:
    with cache.making(path.parent) as folder:
        new = folder / path.name
        new.write_bytes(content)
        cache.put(new, path)


def _classes(spark: SparkSession, code: Sequence[str]) -> bytes:
    """A jar with the classes in *code*."""
    jvm: Any = spark._jvm  # noqa: SLF001
    janino = jvm.org.codehaus.janino
    loader = spark._jsparkSession.getClass().getClassLoader()  # noqa: SLF001
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as classes:
        for source in code:
            compiler = janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(source)
            for one in compiler.getBytecodes().entrySet().toArray():
                name = f"{one.getKey().replace('.', '/')}.class"
                classes.writestr(name, bytes(one.getValue()))
            loader = compiler.getClassLoader()
    return made.getvalue()


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
    loader = compiled(spark, code)
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
