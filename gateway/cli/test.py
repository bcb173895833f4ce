"""`gateway test`: unit tests of a configuration, from sample input to rows.

The rows are those of events, and those of the tables that Spark makes of them.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError

from gateway.cli._working import working
from gateway.sdk.command import located, printable

if TYPE_CHECKING:
    from gateway.cli._trial import Outcome, Row
    from gateway.config import Config

HELP = """\
Test a configuration: each case puts sample input through one of its listeners, in
memory, and compares the rows that come of it.  No daemon, port or directory is needed;
TLS, WebSocket and PROXY headers are left out.

  config: gateway.yaml                # relative to this file
  tests:
    - name: a line of a log
      listener: beats
      input: {events: [{message: hello}]}      # as the protocol's own client sends them
      expect: [{payload: {message: hello}, flaw: null}]
    - name: nonsense
      listener: beats
      input: {hex: "ffff"}            # bytes as they are: hex, base64, text or file
      refused: version                # part of what the log would say
      expect: []

A row of `expect` has the columns that matter: payload, flaw, channel, kind, seq,
content_type, attributes (the keys that are named), protocol, listener; with `spark.tables`
table, the one whose rule takes it.  `only: {kind:
request}` leaves out all rows but those, in `expect` and `tables`, whichever have that
column; `with: [--route, area.move]` are options of `gateway send PROTOCOL`, for
`events`.

`tables` has the same rows as the Spark job makes them, with the columns of section
`spark`: `tables: [{table: events, message: hello, host: null}]`.  That starts a Spark, once
for all cases: pip install 'gateway[spark]'.  `spark.deduplicate` and `stats` are left out.

Example:
  gateway test tests.yaml
  gateway test tests.yaml --json

Exit status: 0 all pass; 1 one fails; 2 it is no such file.
"""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Input(_Strict):
    """The input of a case: one of these."""

    events: list[Any] | None = None
    text: StrictStr | None = None
    hex: StrictStr | None = None
    base64: StrictStr | None = None
    file: StrictStr | None = None

    def model_post_init(self, _: object) -> None:
        """Exactly one, and well formed."""
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError("needs one of events, text, hex, base64, file")
        if self.file is None:
            try:
                self.data(Path())
            except ValueError as why:
                raise ValueError(f"{given[0]}: {why}") from None

    def data(self, folder: Path) -> bytes:
        """The bytes, where they are given as such."""
        if self.text is not None:
            return self.text.encode()
        if self.hex is not None:
            return bytes.fromhex(self.hex)
        if self.base64 is not None:
            return base64.b64decode(self.base64, validate=True)
        return b"" if self.file is None else (folder / self.file).read_bytes()


class Case(_Strict):
    name: str
    listener: str
    input: Input
    options: Annotated[list[str], Field(alias="with")] = []
    only: dict[str, Any] = {}
    refused: str | None = None
    expect: list[dict[str, Any]] | None = None
    tables: list[dict[str, Any]] | None = None


class Cases(_Strict):
    config: str
    tests: Annotated[list[Case], Field(min_length=1)]


_SAID = {
    "missing": "is required; gateway test --help shows such a file",
    "extra_forbidden": "unknown key; gateway test --help shows those that there are",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "string_type": "must be text",
    "too_short": "must have at least one entry",
}
"""Pydantic's kinds of errors, in our words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--json", action="store_true", help="an object for each case, for programs"
    )


def run(args: argparse.Namespace) -> int:
    from gateway import config

    cases = _read(args.file)
    folder = args.file.parent
    loaded = config.load(folder / cases.config)
    outcomes = [_outcome(case, loaded, folder) for case in cases.tests]
    made = _tables(cases.tests, outcomes, loaded)
    failed = 0
    for case, outcome, rows in zip(cases.tests, outcomes, made, strict=True):
        faults = list(_faults(case, outcome, rows))
        failed += bool(faults)
        if args.json:
            print(json.dumps({"name": case.name, "ok": not faults, "faults": faults}))
            continue
        print(f"{'FAIL' if faults else 'ok':<4}  {printable(case.name)}")
        for fault in faults:
            print(f"      {printable(fault)}")
    if not args.json:
        print(f"{len(cases.tests) - failed} of {len(cases.tests)} pass")
    return 1 if failed else 0


def _read(path: Path) -> Cases:
    """Raises `config.Invalid` with every place that is wrong."""
    from gateway.config import Invalid, Problem
    from gateway.config.reader import read

    document = read(path, os.environ)
    value = {} if document.value is None else document.value
    if isinstance(value, dict) and "listeners" in value:
        text = "a configuration, no tests of one: see gateway check"
        raise Invalid(document.file, [Problem((), text)])
    try:
        return Cases.model_validate(value)
    except ValidationError as why:
        for one in why.errors():
            message = one["msg"].removeprefix("Value error, ")
            message = _SAID.get(one["type"], message[0].lower() + message[1:])
            document.object_to(one["loc"], message)
    raise Invalid(document.file, document.problems)


def _outcome(case: Case, loaded: Config, folder: Path) -> Outcome | str:
    """The outcome of a case's input, or why it can not be tried."""
    from gateway.cli import _trial
    from gateway.config.tables import table_of

    known = {one.name: one for one in loaded.listeners}
    if case.listener not in known:
        return f"no listener {case.listener!r}; there is: {', '.join(known)}"
    listener = known[case.listener]
    try:
        if case.input.events is not None:
            events = [_event(each) for each in case.input.events]
            outcome = _trial.send_events(listener, events, case.options)
        else:
            outcome = _trial.send_bytes(listener, case.input.data(folder))
    except (_trial.CanNot, OSError, ValueError) as why:  # no path, say
        return located(why)
    for row in outcome.rows if loaded.spark.tables else ():
        row["table"] = table_of(loaded.spark.tables, row)
    return outcome


def _tables(
    cases: Sequence[Case], outcomes: Sequence[Outcome | str], loaded: Config
) -> list[list[Row] | str]:
    """Spark's rows of each outcome, or why there are none; none for a case without tables."""
    from gateway.spark.files import trial

    made: list[list[Row] | str] = [[] for _ in cases]
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, Path] = {}
        for number, (case, outcome) in enumerate(zip(cases, outcomes, strict=True)):
            if case.tables is not None and not isinstance(outcome, str):
                name = f"{number:06d}"
                files[name] = Path(folder, f"{name}.parquet")
                outcome.write(files[name], name)
        if not files:
            return made
        try:
            with working("starting Spark"):
                rows = trial.rows_of(loaded, list(files.values()))
        except trial.CanNot as why:
            return [str(why)] * len(cases)
    for row in rows:
        mine = made[int(row["node"])]
        assert isinstance(mine, list)
        mine.append({**row, "node": loaded.node})
    return made


def _faults(case: Case, outcome: Outcome | str, made: list[Row] | str) -> Iterator[str]:
    """Differences between a case and its outcome; none if it passes."""
    if isinstance(outcome, str):
        yield outcome
        return
    there = _columns([*outcome.rows, *(made if isinstance(made, list) else [])])
    for column in case.only:
        if there and column not in there and not isinstance(made, str):
            yield f"only: no column {column!r}; there is: {', '.join(there)}"
    yield from _differences(case, outcome)
    if case.tables is None:
        return
    if isinstance(made, str):
        yield made
    else:
        yield from _compare_rows("tables, row", case.tables, case.only, made)


def _event(given: Any) -> bytes:
    """Text as it is, everything else as JSON."""
    if isinstance(given, str):
        return given.encode()
    return json.dumps(given, ensure_ascii=False).encode()


def _differences(case: Case, found: Outcome) -> Iterator[str]:
    if case.refused is None and found.refused:
        yield f"refused: {found.refused}"
    elif case.refused is not None and case.refused not in found.refused:
        yield f"refused: expected {case.refused!r}, got {found.refused or 'no refusal'!r}"
    if found.trouble and case.refused is None:
        yield found.trouble
    if case.expect is not None:
        yield from _compare_rows("row", case.expect, case.only, found.rows)


def _compare_rows(
    what: str,
    expected: Sequence[Mapping[str, Any]],
    only: Mapping[str, Any],
    found: Sequence[Row],
) -> Iterator[str]:
    there = _columns(found)
    only = {column: value for column, value in only.items() if column in there}
    rows = [row for row in found if not any(_compare(only, row))]
    for number, (wanted, row) in enumerate(zip(expected, rows, strict=False), 1):
        for difference in _compare(wanted, row):
            yield f"{what} {number}: {difference}"
    for number in range(len(rows), len(expected)):
        yield f"{what} {number + 1}: missing: {_shown(expected[number])}"
    for number in range(len(expected), len(rows)):
        yield f"{what} {number + 1}: not expected: {_shown(_plain(rows[number]))}"


def _columns(rows: Sequence[Row]) -> dict[str, None]:
    """The columns that any row has, in their order."""
    return dict.fromkeys(column for row in rows for column in row)


def _compare(wanted: Mapping[str, Any], row: Row) -> Iterator[str]:
    for column, value in wanted.items():
        if column not in row:
            yield f"no column {column!r}; there is: {', '.join(row)}"
            continue
        got = row[column]
        if isinstance(got, bytes):
            got = _payload(got, as_text=isinstance(value, str))
        elif column == "body" and isinstance(got, str) and not isinstance(value, str):
            got = json.loads(got)
        elif column == "attributes" and isinstance(value, dict):
            got = {key: (got or {}).get(key) for key in value}
        if got != value:
            yield f"{column}: expected {_shown(value)}, got {_shown(got)}"


def _payload(data: bytes, *, as_text: bool) -> Any:
    text = data.decode("utf-8", "backslashreplace")
    if as_text:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain(row: Row) -> dict[str, Any]:
    shown = {key: value for key, value in row.items() if value not in (None, {}, "")}
    if row["payload"] is not None:
        shown["payload"] = _payload(row["payload"], as_text=False)
    return shown


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
