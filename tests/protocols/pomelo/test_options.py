"""What Pomelo's options refuse, with the key that says it."""

import pytest
from pydantic import ValidationError

from gateway.protocols.pomelo.options import Lobby, Options

NO_END = float("inf")


@pytest.mark.parametrize(
    ("given", "place", "why"),
    [
        (
            {"handshake_user": {"a": "x" * 292}, "handshake_bytes": "299B"},
            "handshake_user",
            r"has 300 bytes .* limit 299 \(handshake_bytes\)",
        ),
        ({"handshake_user": {"a": [NO_END]}}, "handshake_user", "can not be said"),
        (
            {"backends": [{"routes": ["a"], "late": {"a": -NO_END}}]},
            "late",
            "can not be said in JSON",
        ),
    ],
)
def test_what_clients_could_not_be_sent(given, place, why):
    """It is refused at the start, and not when the first client comes."""
    with pytest.raises(ValidationError, match=why) as caught:
        Options.model_validate(given)
    [(at, _)] = caught.value.errors()[0]["ctx"]["error"].found
    assert at == (place,)


def test_all_that_fits_may_be_told():
    """Up to the limit, as JSON in ASCII."""
    told = {"a": "ü" * 48}
    options = Options(handshake_user=told, handshake_bytes="296B")
    assert options.told_user == b'{"a":"' + b"\\u00fc" * 48 + b'"}'
    assert len(options.told_user) == 296


@pytest.mark.parametrize(
    "address",
    ["gw-2:8080", "tcp:gw-2:8080", "http://a/path", "http://u@a", "unix:a.sock", 7, ""],
)
def test_what_is_no_address_of_an_admin_port(address):
    """It is refused by its place in the list."""
    with pytest.raises(ValidationError, match="must be like https://") as caught:
        Lobby.model_validate({"gateways": ["http://fine:1/", address]})
    assert caught.value.errors()[0]["loc"] == ("gateways", 1)


def test_addresses_that_give_the_token_away():
    """Those to other machines, without TLS; a token that is none can not be."""
    near = ["http://localhost:1", "http://127.0.0.1", "http://[::1]:1", "unix:/a"]
    far = ["http://gw-2:8080", "http://127.example:1", "http://10.0.0.1"]
    given = {"gateways": [*near, *far, "https://gw-3:8080"]}
    assert Lobby.model_validate(given).in_the_open == []
    assert Lobby.model_validate(given | {"token": "t"}).in_the_open == far
