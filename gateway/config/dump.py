"""The effective configuration, fit to be shown to anyone who may see the file."""

from __future__ import annotations

import re
from typing import Any

from gateway.config.model import Config
from gateway.sdk.fields import Filled

_MASK = "**********"
#: Spark hides these in its own logs too (spark.redaction.regex).
_SECRET_KEY = re.compile(
    r"secret|password|token|credential|access[.]?key", re.IGNORECASE
)
#: The user in an address.
_USER = re.compile("//[^/]*@")


def dump(config: Config) -> dict[str, Any]:
    """Every key with its value as one would write it, secrets masked."""
    values: dict[str, Any] = config.model_dump(mode="json")
    for port in (*values["listeners"], values["admin"]):
        # It would be read as a section that is empty by accident.
        if port["tls"] is None:
            del port["tls"]
    values["spark"]["conf"] = {
        key: _public(key, value) for key, value in config.spark.conf.items()
    }
    if registry := values["spark"]["schema_registry"]:
        values["spark"]["schema_registry"] = _USER.sub(f"//{_MASK}@", registry)
    return values


def _public(key: str, value: str) -> str:
    if isinstance(value, Filled):
        return value.source
    return _MASK if _SECRET_KEY.search(key) else str(value)
