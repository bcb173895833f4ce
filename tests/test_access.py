"""Access control of the admin port."""

import base64
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access import Access
from gateway.sdk.endpoint import Tcp, Unix, parse_endpoint


def at(listen: str, token: str | None = "s3cret", **more: Any) -> Access:
    """The access to a port that listens there."""
    return Access(cast("Tcp | Unix", parse_endpoint(listen)), token, **more)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:9", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "[::1]"],
)
def test_loopback_knows_its_names(host):
    """On loopback its usual names are answered, whatever the port (tunnels)."""
    assert at("tcp:127.0.0.1:8080").knows([host])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil",
        "",
        "::1",
        "[::1",
        "a b",
    ],
)
def test_loopback_knows_no_others(host):
    """A name that a stranger's DNS pointed at us is not ours."""
    assert not at("tcp:127.0.0.1:8080").knows([host])


def test_two_hosts_are_none():
    """Two Host fields leave no doubt to use."""
    assert not at("tcp:127.0.0.1:1").knows(["localhost", "evil.example"])


def test_the_bound_host_is_known():
    """The host in admin.listen is one of its names."""
    assert at("tcp:127.0.0.5:1").knows(["127.0.0.5:1"])
    assert not at("tcp:127.0.0.1:1").knows(["127.0.0.5:1"])


@pytest.mark.parametrize("listen", ["tcp:0.0.0.0:1", "unix:/x"])
def test_hosts_matter_on_loopback_only(listen):
    """Where a token or a file mode protects, any Host will do."""
    assert at(listen).knows(["gateway.example:8080"])
    behind = at("tcp:127.0.0.1:1", proxied=True)
    assert behind.knows(["gateway.example:8080"]), "a load balancer's own name"


@pytest.mark.parametrize(
    "field",
    [
        "Bearer s3cret",
        "bearer  s3cret",
        "Basic " + base64.b64encode(b"anyone:s3cret").decode(),
    ],
)
def test_the_token_admits(field):
    """Bearer, or Basic with the token as password."""
    assert at("unix:/x").admits([field])


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["s3cret"],
        ["Bearer s3cre"],
        ["Bearer s3cret "[:-1] + "x"],
        ["Bearer"],
        ["Basic s3cret"],
        ["Basic " + base64.b64encode(b"s3cret:").decode()],
        ["Digest s3cret"],
        ["Bearer s3cret", "Bearer s3cret"],
    ],
)
def test_nothing_else_does(fields):
    """Anything but the token, exactly once, stays outside."""
    assert not at("unix:/x").admits(fields)


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_no_field_breaks_the_check(field):
    """Whatever bytes a client sends, the check answers."""
    assert at("unix:/x").admits([field]) == (
        field.partition(" ")[0].lower() == "bearer"
        and field.partition(" ")[2].strip() == "s3cret"
    )


def test_tokens_beyond_ascii():
    """A token outside ASCII is compared as the UTF-8 that clients send."""
    assert at("unix:/x", "schlüssel").admits(
        ["Bearer " + "schlüssel".encode().decode("latin-1")]
    )
