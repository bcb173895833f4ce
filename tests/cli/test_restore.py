"""`gateway restore`: what a directory that was put back has, lacks, and can get back."""

import json


def test_holes_are_filled_from_the_archive(system, gateway):
    """Files all of whose events are in no table go to the job again, when told to; others
    stay, and are named.
    """
    node = system.node()
    first, second, third = (node.publish(count=5) for _ in range(3))
    for path in (first, second, third):
        node.take(path)
    (
        system.root
        / "lake/events/protocol=plain/date=2026-01-01"
        / f"part-{second.name}"
    ).unlink()
    status, out, _ = gateway("restore")
    assert status == 1
    assert "10 in the tables, 0 in the spool, 0 in the journal, 5 missing" in out
    assert (
        "the archive has 1 file whose events are in no table: --fill puts them back"
        in out
    )
    assert not second.exists()
    found = json.loads(gateway("restore", "--fill", "--json")[1])
    assert found["filled"] == [second.name]
    assert second.exists()
    status, out, _ = gateway("restore")
    assert status == 0
    assert "nothing is missing, and somebody vouches for each end" in out


def test_a_file_of_which_the_tables_have_a_part_stays(system, gateway):
    """The job would take its other events twice."""
    node = system.node()
    path = node.publish(count=5)
    path.rename(node.archive / path.name)
    system.lake([1, 2], "some.parquet", by=node.incarnation)
    status, out, _ = gateway("restore", "--fill")
    assert status == 1
    assert f"the archive has {path.name}, of which the tables have a part" in out
    assert not path.exists()
