"""Results for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rsio_check.registry import Needs, Test
from rsio_check.runner import Outcome, Result

_MARKS = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.NOT_JUDGED: "-"}


def as_json(results: Iterable[Result]) -> str:
    """A list with an object for each test."""
    return json.dumps(
        [
            {
                "name": one.test.name,
                "as": one.test.role.value,
                "promise": one.test.promise,
                "outcome": one.outcome.value,
                "why": one.why,
            }
            for one in results
        ],
        indent=1,
    )


def written(results: Sequence[Result]) -> str:
    """A line for each test, then what was not judged, what failed, and the counts."""
    width = max(len(one.test.name) for one in results)
    lines = [
        f"{one.test.name:{width}}  {one.test.role.value:10}  {_MARKS[one.outcome]}"
        for one in results
    ]
    for outcome in (Outcome.NOT_JUDGED, Outcome.FAILED):
        those = [one for one in results if one.outcome is outcome]
        if those:
            lines += ["", outcome.value]
        for one in those:
            lines.append(f"  {one.test.name}: {one.test.promise}")
            lines.append(f"     {printable(one.why)}")
    counts = (
        f"{sum(one.outcome is outcome for one in results)} {outcome.value}"
        for outcome in Outcome
    )
    lines += ["", f"{len(results)} tests: {', '.join(counts)}"]
    return "\n".join(lines)


def listed(tests: Iterable[Test]) -> str:
    """Each test with what it looks at, what it needs, and what it promises."""
    lines = []
    for each in tests:
        needs = "" if each.needs is Needs.NOTHING else f", with {each.needs.value}"
        lines.append(f"{each.name} ({each.role.value}{needs})")
        lines.append(f"     {each.promise}")
    return "\n".join(lines)


def printable(text: str) -> str:
    r"""*text*, with what is not printable spelled (`\x1b`): it may come from outside."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )
