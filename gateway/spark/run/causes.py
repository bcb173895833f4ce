"""The cause of a failure, in one sentence, out of what Java and Spark said.

Java says much that is no cause: warnings, what it loads, where a call came from.  A line is
taken by what it is; what is known of a cause says which key to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["advised", "cause"]

_MOST_CHARACTERS = 400

_FAILED = re.compile(
    r'(?:Exception in thread "[^"]*" |: |Error: (?!Could not create the Java|A fatal exception|A JNI error)|\S+ \S+ ERROR )(?P<said>\S.*)'
)
"""The line of a failure: Java's, py4j's, the launcher's, a log's of that level."""
_CAUSED = re.compile(r"Caused by: (?P<said>\S.*)")
_THROWN = re.compile(r"(?:\w+\.)+(?:\w+\$)?\w*(?:Exception|Error)\b")
"""The line of an exception by itself, which stands behind a log's."""
_NOISE = re.compile(
    r"WARNING|\S+ \S+ (?:WARN|INFO|DEBUG) |::|\s|Error occurred during init|Error: |$"
)
_WRAPPED = re.compile(
    r"(?<![\w.$])(?:[\w.$]+\.)?(?:SparkException|RuntimeException|IllegalArgumentException|"
    r"ExecutionException|ExceptionInInitializerError): (?=\S)"
)
"""Names of classes that say nothing beside their message."""
_PACKAGE = re.compile(r"\b(?:com|java|javax|org|py4j|scala)\.(?:[a-z]\w*\.)+(?=[A-Z])")
_BEGINNING = re.compile(r"SparkContext: Error initializing SparkContext\.: ")

_ADVICE = (
    (r"Master must|Could not parse Master", "spark.master is local[2], or the URL of a cluster"),
    (r"All masters are unresponsive", "nobody answers at spark.master"),
    (r"heap|OutOfMemory|System memory", "spark.driver_memory says how much Java may take"),
    (r"Unrecognized VM option|Unrecognized option", "spark.conf has options of Java that it does not know"),
    (r"INVALID_CONF_VALUE|must be a positive|NumberFormat|Failed to parse", "see spark.conf"),
    (r"unresolved dependency", "spark.conf names a package that can not be fetched: spark.jars.packages"),
    (r"ClassNotFound|NoClassDef|Cannot find catalog plugin", "spark.conf or spark.sink names a class that no jar has"),
    (r"Failed to create (?:directory|any local dir)|No space left", "look at room and rights there, or set spark.local.dir in spark.conf"),
    (r"Permission denied|Read-only file system", "the job's user has to be able to write there"),
    (r"BindException", "set spark.driver.bindAddress in spark.conf, or free the port"),
    (r"UnknownHost|Connection refused|Connect timed out|ConnectException", "who is there does not answer: see spark.conf"),
    (r"AccessDenied|Forbidden|status code 40[13]|InvalidAccessKey|NotAuthorized", "see the credentials in spark.conf or spool.s3"),
)  # fmt: skip


def cause(said: str) -> str | None:
    """The sentence for a text that Java or Spark left; None if it has no cause."""
    lines = said.splitlines()
    found = _failure(lines)
    if not found:
        found = next((line.strip() for line in lines if not _NOISE.match(line)), "")
    if not found:
        return None
    text = _BEGINNING.sub("", _PACKAGE.sub("", _WRAPPED.sub("", found))).strip()[
        :_MOST_CHARACTERS
    ]
    return advised(text, found)


def advised(text: str, found: str = "") -> str:
    """The sentence with the key to change behind it, where one is known for *found*."""
    advice = [what for pattern, what in _ADVICE if re.search(pattern, found or text)]
    return f"{text.rstrip('.')}; {advice[0]}" if advice else text


def _failure(lines: Iterable[str]) -> str:
    """The last line of a failure, with what that was caused by in the end."""
    found = thrown = caused = ""
    for line in lines:
        if failed := _FAILED.match(line):
            found, thrown, caused = failed["said"], "", ""
        elif why := _CAUSED.match(line):
            caused = why["said"]
        elif found and not thrown and _THROWN.match(line):
            thrown = line
    parts = [found, caused or thrown] if found else [caused]
    return ": ".join(part.rstrip(": ") for part in parts if part)
