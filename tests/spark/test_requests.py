"""What a file in a bucket costs in requests, counted, and what docs/scale.md makes of that."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from bucket_node import Node
from deadlines import ROOT
from gateway.spark.bucket.inbox import Inbox
from gateway.spark.bucket.requests import by_threads
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.store.names import file_name, parse_file_name
from gateway.store.objects.node_record import EVERY_SECONDS
from gateway_testkit.bucket import MemoryBucket
from incarnations import A

_MONTH = 30 * 86_400
_DOLLARS = {
    **dict.fromkeys(("create", "replace", "copy", "list"), 5e-6),
    "read": 0.4e-6,
    "remove_all": 0.0,
}
"""Of a request, by S3's prices in us-east-1."""
_TOLD = 0.02
"""The page's figures have two or three digits."""


def test_a_gateway_makes_a_put_a_file(tmp_path):
    """And asks for nothing; how far it is it says once a minute."""
    bucket = MemoryBucket()
    node = Node(tmp_path, bucket).start().sent(b"a")
    before = len(bucket.requests)
    node.sent(b"b", b"c", b"d")
    made = Counter(request for request, _ in bucket.requests[before:])
    node.stop()
    assert made == {"create": 3}


def job_requests(
    folder: Path, gateways: int, looks: int, *, archived: bool
) -> Mapping[str, int]:
    """Of a job whose gateways have each put a file there before each look, and which has
    those of the look before in its tables.
    """
    bucket, committed, fetched = MemoryBucket(), Ranges(), list[str]()
    inbox = Inbox(
        *(bucket, folder, Lake(), lambda: Ledger(committed=committed)),
        archived=archived,
        most_bytes=1 << 30,
        at_once=by_threads,
    )
    inbox.copies.recover()
    for look in range(looks + 2):
        if look == 2:  # those of two looks before are taken out from then on
            bucket.requests.clear()
        for name in fetched:
            file = parse_file_name(name)
            assert file is not None
            committed.add(file.life, file.first, file.last)
            (folder / name).unlink()
        fetched = [
            file_name(f"gw-{number}", A, look + 1, look + 1)
            for number in range(gateways)
        ]
        bucket.objects |= dict.fromkeys(fetched, b"x" * 100)
        assert inbox.look() == gateways
    return Counter(request for request, _ in bucket.requests)


@pytest.mark.parametrize("gateways", [3, 40])
def test_the_job_copies_each_file_or_none(tmp_path, gateways):
    """And asks for each once; looks and removals are one request each, however many gateways
    there are.  What these say of themselves is asked for once a minute."""
    looks = 3
    each = {"read": gateways * looks, "list": looks, "remove_all": looks}
    found = job_requests(tmp_path / "a", gateways, looks, archived=True)
    assert found == {**each, "copy": gateways * looks}
    assert job_requests(tmp_path / "b", gateways, looks, archived=False) == each


def told(line: str) -> list[float]:
    """The dollars in the last cell of the page's row that begins so."""
    page = (ROOT / "docs" / "scale.md").read_text()
    (row,) = [one for one in page.splitlines() if one.startswith(line)]
    return [float(text.replace(",", "")) for text in re.findall(r"([\d.,]+) \$", row)]


def month(requests: Mapping[str, float]) -> float:
    """Dollars of a month that has so many each second."""
    return _MONTH * sum(_DOLLARS[kind] * count for kind, count in requests.items())


@pytest.mark.parametrize("gateways", [10, 100, 200, 1000])
def test_the_page_says_what_a_month_of_the_job_costs(gateways):
    """By the requests that are counted above, of so many gateways and a look each second."""
    words = {"read": gateways / EVERY_SECONDS, "list": 1 / EVERY_SECONDS}
    without = Counter({"read": gateways, "list": 1, "remove_all": 1}) + Counter(words)
    archive, delete = told(f"| {gateways:,} | *")
    assert archive == pytest.approx(month({**without, "copy": gateways}), rel=_TOLD)
    assert delete == pytest.approx(month(without), rel=_TOLD)


@pytest.mark.parametrize(
    ("line", "requests"),
    [
        ("| the gateway's PUT |", {"create": 1}),
        ("| the gateway's PUT of [its word", {"replace": 1 / EVERY_SECONDS}),
        ("| the job's GET |", {"read": 1}),
        ("| the job's COPY to", {"copy": 1}),
        ("| the job's LIST,", {"list": 1}),
    ],
)
def test_the_page_says_what_one_a_second_costs(line, requests):
    assert told(line)[0] == pytest.approx(month(requests), abs=0.05)
