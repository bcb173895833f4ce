"""Instants that senders write into their events, as a Spark expression.

Understood are dates with a time of day (ISO 8601, `T` or a blank, fractions after a point
or a comma, an offset or UTC).  So are numbers: seconds, milliseconds, microseconds or
nanoseconds since 1970, told apart by their size.  Anything else would be a guess.  Of what
is finer than a microsecond the microsecond before is taken.
"""

from __future__ import annotations

#: Python, and with it every `collect()`, knows the years 1 to 9999 only; a day or two
#: less, so that it can show them in any time zone: 0001-01-03 and 9999-12-30.
_FIRST = "timestamp_micros(-62135424000000000)"
_LAST = "timestamp_micros(253402214399999999)"

#: A smaller number is no instant of our era but a duration, a year or a day.
_LEAST_SECONDS = "1e8"

#: A number that is not written out to billions of digits.
_NUMBER = "^[+-]?[0-9.]{1,100}([eE][+-]?[0-9]{1,3})?$"


def instant(text: str) -> str:
    """The SQL expression *text* as a timestamp, or null; see `bounded`.

    *text* is repeated, so it should be the name of a column.
    """
    calendar = f"try_cast(replace({text}, ',', '.') AS timestamp)"
    value = f"try_cast({text} AS decimal(38,16))"
    micros = (
        f"CASE WHEN abs({value}) < 1e11 THEN floor({value} * 1000000)"
        f" WHEN abs({value}) < 1e14 THEN floor({value} * 1000)"
        f" WHEN abs({value}) < 1e17 THEN floor({value}) ELSE floor({value} / 1000) END"
    )
    epoch = (
        f"CASE WHEN abs({value}) >= {_LEAST_SECONDS}"
        f" THEN timestamp_micros(try_cast({micros} AS bigint)) END"
    )
    return (
        f"CASE WHEN substr({text}, 5, 1) = '-' AND substr({text}, 11, 1) IN ('T', ' ')"
        f" THEN {calendar}"
        f" WHEN {text} RLIKE '{_NUMBER}' THEN {epoch}"
        f" WHEN {text} RLIKE '^[+-]?[0-9]{{4,6}}-[0-9]{{1,2}}-[0-9]{{1,2}}[T ]'"
        f" THEN {calendar} END"
    )


def day(instant: str) -> str:
    """The day of a timestamp, in UTC, whatever the session's time zone is."""
    micros = f"unix_micros({instant})"
    each = 86_400_000_000
    return f"date_from_unix_date(cast(({micros} - pmod({micros}, {each})) div {each} AS int))"


def bounded(name: str) -> str:
    """The timestamp column *name*, kept within the years 1 to 9999 of any zone."""
    return (
        f"CASE WHEN {name} > {_LAST} THEN {_LAST} WHEN {name} < {_FIRST} THEN {_FIRST}"
        f" ELSE {name} END"
    )
