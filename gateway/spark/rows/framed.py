"""Avro and Protobuf events of schema registries as JSON: `Framed.java` as a function of a session.

The header that a registry's serializers put before each event says the id of its schema, and
the listener's `options.framing` takes it off: `…;framing=confluent;schema=7` is the row's
content type then.  The schemas are files of a folder, `7.avsc` or `SCOPE/STREAM/7.avsc`, and of
Protobuf `7.MESSAGE.desc`; those of a registry's REST are fetched into it when an event first
needs them (`Registry.java`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from gateway.spark.commit.ledger import Broken
from gateway.spark.jvm.compiled import array, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Whether a row may be one.
FRAMED = "content_type LIKE '%;schema=%'"

#: Each uses those before it.
_SOURCES = [
    Path(__file__).with_name(f"{one}.java")
    for one in ("Json", "Avro", "Proto", "Registry", "Framed")
]
_CLASS = "gateway.spark.Framed"


@dataclass(frozen=True)
class Schemas:
    """Places of schemas."""

    known: Mapping[str, str]
    """Texts of schemas by the id, or by `SCOPE/STREAM/ID`."""
    folder: str = ""
    registry: str = ""
    """The address of a registry's REST; empty: none."""

    @classmethod
    def of(cls, settings: Any) -> Schemas | None:
        """The schemas that the section `spark` of a configuration asks for.

        Raises as `schemas_in`.
        """
        if settings.schemas is None:
            return None
        folder = str(settings.schemas.absolute())
        return cls(
            schemas_in(settings.schemas),
            folder,
            (settings.schema_registry or "").rstrip("/"),
        )


def schemas_in(folder: Path) -> dict[str, str]:
    """The schemas in a folder, by the names of their files up to the first dot.

    Of Protobuf it is the message's name, and the descriptors behind it as base64.  Raises
    `Broken` for a file `.avsc` that is no JSON.
    """
    found = {}
    for path in sorted(folder.rglob("*.desc")):
        schema, _, message = path.name.removesuffix(".desc").partition(".")
        told = base64.b64encode(path.read_bytes()).decode()
        name = path.relative_to(folder).with_name(schema)
        found[str(name)] = f"{message} {told}"
    for path in sorted(folder.rglob("*.avsc")):
        text = path.read_text("utf-8")
        try:
            json.loads(text)
        except ValueError as why:
            raise Broken(f"spark.schemas: {path}: {why}") from None
        found[str(path.relative_to(folder).with_suffix(""))] = text
    return found


def function(spark: SparkSession, schemas: Schemas) -> str:
    """A function's name in SQL: payload, content type and channel to JSON, as binary; null
    where no schema is to be had, or the payload is no value of it.

    Bytes are base64, decimals, days and instants are texts.
    """
    code = [source.read_text("utf-8") for source in _SOURCES]
    name = f"gateway_framed_{crc32(repr((code, schemas)).encode()):08x}"
    if not spark.catalog.functionExists(name):
        java: Any = spark._jvm  # noqa: SLF001
        texts = [[*schemas.known], [*schemas.known.values()]]
        given = [array(spark, java.String, each) for each in texts]
        given += [schemas.registry, schemas.folder]
        register(spark, name, code, _CLASS, given, '"binary"')
    return name
