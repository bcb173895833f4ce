"""`gateway audit` looks at what files hold, and at the chain that they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogs import expire, lines_of
from gateway.audit import payloads
from gateway.store import digests
from gateway.store.names import file_name, parse_file_name
from gateway.store.node.mark import Mark, Marker
from gateway.store.system.disk import RealDisk
from incarnations import A, rows_of

Run = Callable[..., tuple[int, str, str]]


def flip(path: Path, at: int) -> None:
    """One bit of a file, which keeps its times."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def rewrite(path: Path, *, digest: str | None = None) -> None:
    """Another payload in the first row; with that digest, or an honest one ("right")."""
    with pq.ParquetFile(path) as file:
        table, metadata = file.read(), dict(file.metadata.metadata)
    rows = table.to_pylist()
    rows[0]["payload"] = b"forged"
    new = table.from_pylist(rows, schema=table.schema)
    if digest == "right":
        found = digests.EventsDigest(rows[0]["lsn"])
        found.add(new["payload"], new["received_at"])
        digest = found.hexdigest()
    if digest is not None:
        metadata[digests.EVENTS_KEY] = digest.encode()
    save(path, new, metadata)


def save(path: Path, table: pa.Table, metadata: dict[bytes, bytes]) -> None:
    """A file of these rows that says this."""
    metadata = {k: v for k, v in metadata.items() if k.startswith(b"gateway.")}
    table = table.replace_schema_metadata(None)  # what the file said before is there
    with pq.ParquetWriter(path, table.schema, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)


def link(path: Path) -> str:
    return digests.link_of(
        digests.of_file(path),
        digests.said(digests.metadata_of(path), digests.PREVIOUS_KEY) or "",
    )


@pytest.mark.parametrize("where", ["head", "payloads", "middle", "footer", "tail"])
def test_a_flipped_bit_in_the_spool_is_not_complete(says, system, gateway, where):
    """Wherever it is, and whether Spark could read the file or not."""
    path = system.node().publish(count=2000)
    size = path.stat().st_size
    offset = pq.ParquetFile(path).metadata.row_group(0).column(12).data_page_offset
    at = {"head": 0, "payloads": offset + 60, "middle": size // 2}
    assert gateway("audit")[0] == 0
    flip(path, {**at, "footer": size - 200, "tail": size - 1}[where])
    out = says(1, "audit")
    assert f"problem: {path}: " in out
    assert f"{path}, which should have them, is damaged" in out
    assert out.splitlines()[-1].startswith("INCOMPLETE: ")


@pytest.mark.parametrize("digest", [None, "right"])
def test_other_payloads_in_the_spool_are_not_complete(says, system, digest):
    """A whole, readable file with the right lsns; its own digest tells, or the catalog."""
    path = system.node().publish(b"one", b"two")
    rewrite(path, digest=digest)
    out = says(1, "audit")
    assert "its events were changed" in out
    assert ("it says" if digest is None else "the catalog says") in out


def test_a_file_without_a_digest_is_fine(node, gateway):
    """If it has no line in the catalog, either."""
    path = node.publish(b"one", b"two")
    rewrite(path, digest="")
    (node.journal / "catalog").unlink()
    assert gateway("audit")[0] == 0


@pytest.mark.parametrize("body", [False, True])
def test_payloads_are_followed_into_the_tables(says, node, system, gateway, body):
    """By the digest of their file, in the archive or only in the catalog."""
    first, second = node.publish(count=50), node.publish(count=60)
    for path in (first, second):
        into_tables(system, path, body=body)
        path.rename(node.archive / path.name)
    (node.archive / second.name).unlink()
    out = says(0, "audit", "--content")
    assert "the 110 payloads of 2 files as published" in out
    (table,) = system.root.rglob(f"part-{second.name}")
    rows = pq.read_table(table).to_pylist()
    rows[7]["body" if body else "payload"] = "{}" if body else b"{}"
    schema = pq.read_schema(table)
    pq.write_table(pq.read_table(table).from_pylist(rows, schema=schema), table)
    out = says(1, "audit", "--content")
    assert f"{table}: the events of gw-1 lsn 51 to 110 are not those" in out
    assert json.loads(gateway("audit", "--content", "--json")[1])["complete"] is False


@pytest.mark.parametrize("column", ["node", "lsn"])
def test_a_row_without_node_or_lsn_is_told(says, node, system, column):
    """The payloads of the others are compared nevertheless."""
    node.take(node.publish(count=20))
    table = system.lake([5], "null.parquet")
    rows = pq.read_table(table).append_column("payload", [[b"x"]])
    at = rows.column_names.index(column)
    null = pa.nulls(1, rows.schema.field(column).type)
    pq.write_table(rows.set_column(at, column, null), table)
    out = says(1, "audit", "--content")
    assert f"problem: {table}: an event has no node or no lsn" in out
    assert "the 20 payloads of 1 file as published" in out


def test_an_lsn_column_of_another_type_is_told(says, node, system):
    """Such a file is compared with nothing."""
    node.take(node.publish(count=20))
    table = system.lake([5], "text.parquet")
    rows = pq.read_table(table)
    pq.write_table(rows.set_column(1, "lsn", rows["lsn"].cast("string")), table)
    out = says(1, "audit", "--content")
    assert f"problem: {table}: its column lsn is string, not int64" in out


def test_rows_of_a_table_without_a_payload_are_told(says, node, system):
    """A damaged name of a column; only a VARIANT is no fault, and told as such."""
    path = node.publish(count=9)
    into_tables(system, path, body=True)
    path.rename(node.archive / path.name)
    (table,) = system.root.rglob(f"part-{path.name}")
    whole = pq.read_table(table, partitioning=None)
    names = ["bodx" if name == "body" else name for name in whole.column_names]
    pq.write_table(whole.rename_columns(names), table)
    out = says(1, "audit", "--content")
    assert f"problem: {table}: it can not be read: a row has neither body nor" in out
    variant = pa.StructArray.from_arrays([pa.array([b"v"] * len(whole))], ["value"])
    pq.write_table(whole.set_column(2, "body", variant), table)
    out = says(0, "audit", "--content")
    assert "note: the rows of 1 files can not be compared" in out


def content(gateway: Run, *more: object) -> dict[str, Any]:
    """What the payloads were found to be."""
    plain = json.loads(gateway("audit", "--content", "--json", *more)[1])["payloads"]
    assert isinstance(plain, dict)
    return plain


def test_what_is_compared_with_nothing_is_counted(says, node, system, gateway):
    """Of one node or of all: file and catalog's line are gone, and so is the digest."""
    node.take(node.publish(count=5)).unlink()
    node.take(node.publish(count=7))
    (node.journal / "catalog").unlink()
    other = system.node("gw-2")
    other.take(other.publish(count=11))
    out = says(0, "audit", "--content")
    assert "the 18 payloads of 2 files as published" in out
    assert "note: 5 events in the tables are compared with nothing" in out
    assert content(gateway, "--node", "gw-1")["uncompared"] == 5
    assert content(gateway, "--node", "gw-2")["uncompared"] == 0


def test_the_rows_of_a_file_are_compared_of_which_one_is_missing(
    says, node, system, gateway
):
    """Each with the file's own, while spool or archive has it; what the tables have none of
    is not meant."""
    node.take(node.publish(count=5))
    path = node.publish(count=7)
    archived = node.take(path)
    (part,) = system.root.rglob(f"part-{path.name}")
    table = pq.read_table(part)
    pq.write_table(table.slice(0, 3), part)
    node.publish(count=4)
    found = content(gateway)
    assert (found["partial"], found["uncompared"], found["events"]) == (1, 0, 8)
    assert not found["problems"]
    rows = table.slice(0, 3).to_pylist()
    rows[1]["payload"] = b"forged"
    pq.write_table(table.from_pylist(rows, schema=table.schema), part)
    out = says(1, "audit", "--content")
    assert "the payloads of gw-1 lsn 7 are not those of their spool file" in out
    archived.unlink()
    _, out, _ = gateway("audit", "--content")
    assert (
        "note: 1 file of which the tables do not have each event once can not be" in out
    )
    found = content(gateway)
    assert (found["passed_over"], found["uncompared"], found["events"]) == (1, 3, 5)


def test_tables_that_are_compacted_meanwhile_are_counted(
    says, node, system, monkeypatch
):
    """Their rows are compared with nothing, which the next look may do."""
    node.take(node.publish(count=5))
    second = node.take(node.publish(count=6))
    (part,) = system.root.rglob(f"part-{second.name}")
    load = payloads._load

    def compacted(piece: Any) -> Any:
        part.unlink(missing_ok=True)
        return load(piece)

    monkeypatch.setattr(payloads, "_load", compacted)
    out = says(0, "audit", "--content")
    assert "note: 1 files of the tables were gone when they were read" in out
    assert "note: 6 events in the tables are compared with nothing" in out


def into_tables(system: Any, path: Path, *, body: bool) -> None:
    """As the Spark job: JSON as text in `body`; out of order, in two files."""
    table = pq.read_table(path, columns=["node", "lsn", "payload", "received_at"])
    table = rows_of(table, path.name)
    table = table.set_column(0, "node", table["node"].cast("string"))
    if body:
        text = table["payload"].cast("string")
        table = table.set_column(2, "body", text)
    target = system.root / "lake/events/protocol=plain/date=2026-01-01"
    target.mkdir(parents=True, exist_ok=True)
    half = len(table) // 2
    order = list(range(len(table) - 1, half - 1, -1))
    pq.write_table(table.take(order), target / f"part-{path.name}")
    pq.write_table(table.slice(0, half), target / f"part-2-{path.name}")


def test_a_changed_file_in_the_archive_is_found(says, node, gateway):
    """With --content; the tables have its events, so that nothing is missing."""
    path = node.take(node.publish(count=500))
    assert gateway("audit", "--content")[0] == 0
    flip(path, path.stat().st_size // 2)
    assert gateway("audit")[0] == 0
    out = says(1, "audit", "--content")
    assert f"problem: {path}: " in out


# -- the chain -----------------------------------------------------------------------------


@pytest.fixture
def files(system) -> list[Path]:
    """Three files in the archive and two in the spool, all in order."""
    node = system.node()
    made = [node.publish(count=10) for _ in range(5)]
    return [node.take(path) for path in made[:3]] + made[3:]


def test_a_chain_is_whole(says, files, gateway):
    """The newest link is told; a link that was kept is found, another one is not."""
    out = says(0, "audit", "--chain", "--link", link(files[1]))
    assert f"chain: gw-1: 5 files, lsn 1 to 50, link {link(files[4])}" in out
    other = "5f" * 32
    out = says(1, "audit", "--chain", "--link", other)
    assert f"problem: link {other} is in no chain" in out
    assert gateway("audit", "--link", other)[0] == 2
    assert gateway("audit", "--chain", "--link", "5f")[0] == 2


@pytest.mark.parametrize("catalog", [True, False])
@pytest.mark.parametrize("which", [0, 1, 3])
def test_a_removed_file_is_named(says, system, files, which, catalog):
    """By the catalog, or at least by its lsns."""
    files[which].unlink()
    if not catalog:
        (system.root / "journal/gw-1/catalog").unlink()
    out = says(1, "audit", "--chain")
    assert f"removed: what had lsn {10 * which + 1} to {10 * which + 10} is" in out
    assert (f"problem: {files[which].name}: removed" in out) == catalog
    assert out.splitlines()[-1].endswith("the chain of gw-1 is broken")


def test_the_newest_file_is_missed(files, gateway):
    """No file says so; the catalog does."""
    files[4].unlink()
    _, out, _ = gateway("audit", "--chain")
    assert f"problem: {files[4].name}: removed: what had lsn 41 to 50" in out


@pytest.mark.parametrize("catalog", [True, False])
@pytest.mark.parametrize("which", [0, 2, 3])
def test_a_changed_file_is_named(says, system, files, which, catalog):
    """By its line of the catalog, or by the link in the file after it."""
    rewrite(files[which])
    if not catalog:
        (system.root / "journal/gw-1/catalog").unlink()
    out = says(1, "audit", "--chain")
    faults = [line for line in out.splitlines() if "changed or exchanged" in line]
    assert [str(files[which]) in line for line in faults] == [True]


def test_exchanged_files_are_named(files, gateway):
    """Two files with each other's names."""
    aside = files[0].with_name("aside")
    files[0].rename(aside)
    files[1].rename(files[0])
    aside.rename(files[1])
    _, out, _ = gateway("audit", "--chain")
    for path in files[:2]:
        assert f"problem: {path}: changed or exchanged: the catalog says" in out


def test_what_retention_removed_is_told_as_such(says, system, files):
    """The chain begins at the oldest file that is there."""
    expire(system.root, [path.name for path in files[:2]], "gw-1")
    for path in files[:2]:
        path.unlink()
    out = says(0, "audit", "--chain", "--link", link(files[2]))
    assert "note: chain of gw-1: lsn 1 to 20: not kept any longer" in out
    assert "chain: gw-1: 3 files, lsn 21 to 50, link" in out
    files[2].unlink()
    out = says(1, "audit", "--chain")
    assert "removed: what had lsn 21 to 30 is in no place" in out


def test_what_another_incarnation_had_expired_is_no_excuse(says, system, files):
    """A rebuilt machine gives its lsns again: those of the one before left the archive."""
    expire(system.root, [file_name("gw-1", A, 1, 90)], "gw-1")
    files[1].unlink()
    out = says(1, "audit", "--chain")
    assert "removed: what had lsn 11 to 20 is in no place" in out


def test_the_job_may_delete_what_it_has_committed(
    says, system, files, gateway, tmp_path
):
    """With `spool.after: delete`; what no table has may not be gone."""
    ledger = system.root / "lake/.gateway/events.json"
    ledger.parent.mkdir()
    named = parse_file_name(files[0].name)
    assert named is not None
    incarnation = named.incarnation
    ledger.write_text(
        json.dumps({"form": 1, "committed": {"gw-1": {incarnation: [[1, 30]]}}})
    )
    config = tmp_path / "gateway.yaml"
    config.write_text(
        f"node: gw-1\ndata_dir: {system.root}\nspool: {{after: delete}}\n"
        "listeners: [{name: beats, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]\n"
    )
    for path in files[:3]:
        path.unlink()
    words = ["audit", "--chain", "--config", config]
    out = says(0, *words, where=False)
    assert "lsn 1 to 30: not kept any longer" in out
    files[3].unlink()
    assert gateway(*words, where=False)[0] == 1
    ledger.write_text("{")
    assert f"problem: {system.root}/lake: " in says(1, *words, where=False)
    assert f"problem: {system.root}/lake: " in says(1, "audit", "--chain")


def test_the_chain_is_verified_from_an_lsn_on(says, system, files, gateway):
    """--from N passes over what is missing or exchanged before; links of files before it
    are in no chain then."""
    files[0].unlink()
    rewrite(files[1])
    old = link(files[1])
    assert gateway("audit", "--chain")[0] == 1
    assert gateway("audit", "--chain", "--from", 11)[0] == 1
    out = says(0, "audit", "--chain", "--from", 21)
    assert "chain: gw-1: 3 files, lsn 21 to 50" in out
    assert gateway("audit", "--chain", "--from", 21, "--link", link(files[2]))[0] == 0
    assert gateway("audit", "--chain", "--from", 21, "--link", old)[0] == 1
    files[2].unlink()
    assert gateway("audit", "--chain", "--from", 21)[0] == 1


def test_a_chain_that_the_gateway_lost_is_told(says, node, system):
    """Somebody removed the newest file and all that knew its link."""
    node.take(node.publish(count=3))
    newest = node.publish(count=4)
    into_tables(system, newest, body=False)
    newest.unlink()
    catalog = node.journal / "catalog"
    catalog.write_bytes(b"".join(lines_of(catalog, b"incarnation")))
    Marker(system.root / "state/gw-1", RealDisk()).write(Mark(7, 7, 7), now=True)
    assert system.node().publish(count=1).name.endswith("8.parquet")
    out = says(1, "audit", "--chain")
    assert "removed: what had lsn 4 to 7 is in no place" in out
