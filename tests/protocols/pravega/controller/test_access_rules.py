"""Rules of access by themselves: what a pattern matches, and what rules say in sentences."""

import pytest

from gateway.protocols.pravega.controller.access import (
    Access,
    in_sentences,
    of_segment,
    of_stream,
)
from gateway.protocols.pravega.controller.methods import page
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.options import Rule
from gateway.sdk.costs import Turn

ORDERS = "shop/orders/0.#epoch.0"


def test_a_pattern_costs_no_more_than_the_name():
    """Several stars and a name of a MiB, which is nearly what they ask for: to try each
    place of each star would take hours."""
    access = Access([Rule(principals=["a*a*a*b"], read=["shop/*-*-*-x", "*a*a*b/*"])])
    assert access.allows("aaab", Need.READ, of_stream("shop", "-a-b-c-x"))
    assert access.allows("aaab", Need.READ, of_stream("shop", "----x-x"))
    assert access.allows("aaab", Need.READ, of_stream("aab", "any"))
    for name in ("--x", "---xx", "---x/", "a---", "---"):
        assert not access.allows("aaab", Need.READ, of_stream("shop", name)), name
    long = 2**20
    assert access.allows("aaab", Need.READ, of_stream("shop", "-" * long + "x"))
    assert not access.allows("aaab", Need.READ, of_stream("shop", "-" * long))
    assert not access.allows("aaab", Need.READ, of_stream("a" * long, "any"))
    assert not access.allows("a" * long, Need.READ, of_stream("shop", "---x"))


def test_a_page_asks_the_rules_about_its_names_alone():
    """Not about a hundred thousand others, for each thousand."""
    asked: list[str] = []

    def seen(name: str) -> bool:
        asked.append(name)
        return name[-1] != "0"

    names = [f"{number:05}" for number in range(5000)]
    found, token = page(names, "01999", seen, Turn())
    assert found == [one for one in names[2000:] if one[-1] != "0"][:1000]
    assert token.token == found[-1]
    assert asked == names[2000 : 2000 + len(asked)]
    assert len(asked) < 1200


NAMES = ("orders", "orders-old", "Orders", "o/s", "", "_RGorders", "_RGbilling", "_MARKorders",
         "_MARKx", "prices_kvtable", "orders_kvtable", "a.b", "axb", "x" * 300)  # fmt: skip


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [
            Rule(
                principals=["*"],
                read=["shop/orders"],
                groups=["shop/billing", "shop/p*"],
            )
        ],
        [Rule(principals=["a*"], write=["sh*/*s", "*/a.b"], manage=["bank/*"])],
        [
            Rule(principals=["ann"], read=["shop/*-*"]),
            Rule(principals=["ann"], manage=["shop/x*x", "shop/_*", "*/*_kvtable"]),
            Rule(principals=["bob"], manage=["*/*"]),
        ],
        None,
    ],
)
def test_lists_go_by_the_same_rules(rules):
    """What a principal is shown of a scope is what it may ask for by its name."""
    access = Access(rules)
    for who in ("ann", "bob", ""):
        for scope in ("shop", "bank", "a"):
            seen = access.rights(who).streams(scope)
            assert [name for name in NAMES if seen(name)] == [
                name
                for name in NAMES
                if access.allows(who, Need.ANY, of_stream(scope, name))
            ]


def test_names_that_only_look_alike():
    """Stars match within a name; nothing else of a pattern has a meaning."""
    access = Access()
    access.configure(
        [Rule(principals=["CN=*,O=Shop"], read=["sh.p/o*s"], write=["*/*"])]
    )
    ann = "CN=ann,O=Shop"
    assert access.allows(ann, Need.READ, of_stream("sh.p", "orders"))
    assert access.allows(ann, Need.READ, of_stream("sh.p", "_MARKorders"))
    assert access.allows(ann, Need.READ, of_segment("sh.p/os/0.#epoch.0#transaction.1"))
    for scope, name in (
        ("shop", "orders"), ("sh.p", "orders/x/s"), ("sh.p/o", "s"), ("sh.p", "order"),
        ("sh.p", "_RGorders"), ("Sh.p", "orders"), ("sh.p", ""),
    ):  # fmt: skip
        assert not access.allows(ann, Need.READ, of_stream(scope, name)), (scope, name)
    for who in ("", "ann", "CN=ann,O=Shopping", "xCN=ann,O=Shop"):
        assert not access.allows(who, Need.READ, of_stream("sh.p", "orders")), who
    for segment in ("s", "a/b", "a/b/c/d", "", "/"):
        assert not access.allows(ann, Need.WRITE, of_segment(segment)), segment
    assert access.allows(ann, Need.WRITE, of_segment("a/b/c"))


def test_no_rules_and_an_empty_list():
    """Absent: everything is allowed; none of them: nothing.  A star is no name at all."""
    access = Access()
    assert access.allows("", Need.MANAGE, of_segment(ORDERS))
    access.configure([])
    assert not access.allows("ann", Need.USE, of_segment(ORDERS))
    access.configure([Rule(principals=["*"], read=["*/*"])])
    assert access.allows("ann", Need.READ, of_segment(ORDERS))
    assert not access.allows("", Need.READ, of_segment(ORDERS))


def sentences(*rules: Rule) -> list[str]:
    return in_sentences(list(rules))


def test_rules_in_sentences():
    """As `gateway check` says them."""
    assert in_sentences(None) == []
    assert sentences() == ["nobody may do anything else"]
    assert sentences(
        Rule(principals=["ann", "bob"], read=["shop/orders"]),
        Rule(
            principals=["CN=*"],
            read=["a/*", "b/*"], write=["a/x", "a/y", "a/z"], groups=["a/g"],
        ),
    ) == [
        "ann and bob may read shop/orders",
        "CN=* may read a/* and b/*, write a/x, a/y and a/z and use the reader groups a/g",
        "nobody may do anything else",
    ]  # fmt: skip
