"""Access control of the admin port."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.access import (
    Misconfigured,
    authorized,
    browser_url,
    check,
    host_allowed,
)
from gateway.sdk.endpoint import Systemd, Tcp, Unix, parse_endpoint


def where(listen: str) -> Tcp | Unix:
    """A place that `check` lets through with a token."""
    return check(parse_endpoint(listen), "s3cret")


def test_only_tcp_and_socket_files() -> None:
    """A socket from systemd is refused by name rather than misread."""
    with pytest.raises(Misconfigured, match=r"^admin\.listen: .*systemd:admin"):
        check(Systemd("admin"), "s3cret")


@pytest.mark.parametrize(
    ("listen", "url_there"),
    [
        ("tcp:8080", "http://127.0.0.1:8080/"),
        ("tcp:0.0.0.0:8080", "http://127.0.0.1:8080/"),
        ("tcp:[::]:8080", "http://127.0.0.1:8080/"),
        ("tcp:[::1]:80", "http://[::1]:80/"),
        ("tcp:gw.example:80", "http://gw.example:80/"),
        ("unix:/run/x", None),
    ],
)
def test_url(listen: str, url_there: str | None) -> None:
    """The URL is one that a browser on this machine can open."""
    assert browser_url(where(listen)) == url_there


@pytest.mark.parametrize(
    "listen",
    ["tcp:8080", "tcp:0.0.0.0:8080", "tcp:[::]:80", "tcp:10.0.0.1:1", "tcp:gw:1"],
)
def test_reachable_needs_a_token(listen: str) -> None:
    """A port that other machines may reach is refused without a token, by name."""
    with pytest.raises(Misconfigured, match=r"^admin\.token: required"):
        check(parse_endpoint(listen), None)
    check(parse_endpoint(listen), "s3cret")


@pytest.mark.parametrize(
    "listen",
    ["tcp:127.0.0.1:1", "tcp:127.8.8.8:1", "tcp:[::1]:1", "tcp:LocalHost:1", "unix:/x"],
)
def test_private_needs_none(listen: str) -> None:
    """Loopback and socket files do without a token."""
    check(parse_endpoint(listen), None)


@pytest.mark.parametrize("token", ["", "  "])
def test_an_empty_token_is_an_error(token: str) -> None:
    """An empty token is never taken for one, nor for none."""
    for listen in ("tcp:127.0.0.1:1", "tcp:8080", "unix:/x"):
        with pytest.raises(Misconfigured, match=r"^admin\.token: empty"):
            check(parse_endpoint(listen), token)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:9", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "[::1]"],
)
def test_loopback_knows_its_names(host: str) -> None:
    """On loopback its usual names are answered, whatever the port (tunnels)."""
    assert host_allowed(where("tcp:127.0.0.1:8080"), [host])


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
def test_loopback_knows_no_others(host: str) -> None:
    """A name that a stranger's DNS pointed at us is not ours."""
    assert not host_allowed(where("tcp:127.0.0.1:8080"), [host])


def test_two_hosts_are_none() -> None:
    """Two Host fields leave no doubt to use."""
    assert not host_allowed(where("tcp:127.0.0.1:1"), ["localhost", "evil.example"])


def test_the_bound_host_is_known() -> None:
    """The host in admin.listen is one of its names."""
    assert host_allowed(where("tcp:127.0.0.5:1"), ["127.0.0.5:1"])
    assert not host_allowed(where("tcp:127.0.0.1:1"), ["127.0.0.5:1"])


@pytest.mark.parametrize("listen", ["tcp:0.0.0.0:1", "unix:/x"])
def test_hosts_matter_on_loopback_only(listen: str) -> None:
    """Where a token or a file mode protects, any Host will do."""
    assert host_allowed(where(listen), ["gateway.example:8080"])


@pytest.mark.parametrize(
    "field",
    [
        "Bearer s3cret",
        "bearer  s3cret",
        "Basic " + base64.b64encode(b"anyone:s3cret").decode(),
    ],
)
def test_the_token_admits(field: str) -> None:
    """Bearer, or Basic with the token as password."""
    assert authorized("s3cret", [field])


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
def test_nothing_else_does(fields: list[str]) -> None:
    """Anything but the token, exactly once, stays outside."""
    assert not authorized("s3cret", fields)


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_no_field_breaks_the_check(field: str) -> None:
    """Whatever bytes a client sends, the check answers."""
    assert authorized("s3cret", [field]) == (
        field.partition(" ")[0].lower() == "bearer"
        and field.partition(" ")[2].strip() == "s3cret"
    )


def test_tokens_beyond_ascii() -> None:
    """A token outside ASCII is compared as the UTF-8 that clients send."""
    assert authorized("schlüssel", ["Bearer " + "schlüssel".encode().decode("latin-1")])
