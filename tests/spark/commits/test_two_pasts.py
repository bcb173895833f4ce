"""Two copies of one machine, whose events have one name, in a table of a format."""

from collections import Counter

import pytest

from format_tables import MARKS
from gateway.spark import job
from incarnations import A

pytestmark = MARKS

AT = 1_772_366_400_000_000


def past(name: str, first: int, last: int) -> list[bytes]:
    return [
        b'{"past": "%b", "n": %d}' % (name.encode(), n) for n in range(first, last + 1)
    ]


@pytest.mark.lowest
def test_what_both_had_is_there_once_and_what_one_had_too(world):
    """The rows of the table are what a file is compared with; and once more with no
    checkpoint, where the same files lie in the spool again."""

    def put(first: int, events: list[bytes]) -> None:
        world.spool.put("gw", first, events, received_at=AT)

    def run() -> None:
        job.run(world.config, world.spark, available_now=True)

    common, one, two = past("both", 31, 36), past("one", 37, 42), past("two", 37, 45)
    put(31, common + one[:4])
    run()
    put(34, common[3:] + two)
    put(33, common[2:] + one)
    run()
    put(40, two[3:])
    run()
    rows = [row for row in world.events().rows().collect() if row.lsn > 30]
    assert Counter(row.body.encode() for row in rows) == Counter(common + one + two)
    by = {row.incarnation for row in rows if b'"two"' in row.body.encode()}
    assert len(by) == 1
    assert by != {A}
    assert world.spool.names() == []
