"""The vectors of rules, which hold the job and `gateway test` to one answer.

An `@` in a text of an event stands for as many letters as its `filled` says.
"""

import json
from pathlib import Path
from typing import Any

_PATH = Path(__file__).parents[1] / "vectors" / "rules.json"


def vectors() -> dict[str, Any]:
    """The rules by table, and events with the tables that take them."""
    found: dict[str, Any] = json.loads(_PATH.read_text())
    for event in found["events"]:
        letters = "x" * event.pop("filled", 1)
        if letters[1:]:
            event["payload"] = event["payload"].replace("@", letters)
            attributes = event["attributes"].items()
            event["attributes"] = {
                key: one.replace("@", letters) for key, one in attributes
            }
    return found
