"""What the listeners of one daemon share."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from twisted.internet.defer import Deferred

from gateway.protocols.pomelo import protocol
from gateway.protocols.pomelo.options import Lobby, Options
from gateway.protocols.pomelo.service import PomeloService
from gateway.sdk.protocol import Unusable
from gateway.testing.plugins import lend, listener_of


def service(data_dir: Path, *outboxes: dict[str, Any] | None) -> PomeloService:
    """Of so many listeners, with these outboxes."""
    listeners = [
        listener_of(protocol, data_dir, {"outbox": outbox}, {}) for outbox in outboxes
    ]
    found = protocol.service(lend(protocol, data_dir, listeners))
    assert isinstance(found, PomeloService)
    return found


def test_listeners_that_share_an_outbox(tmp_path):
    """… have one: its files are pushed once, and its names are noted in one place."""
    (tmp_path / "same").symlink_to("outbox", target_is_directory=True)
    one, other = {"directory": "outbox"}, {"directory": "other"}
    found = service(tmp_path, one, None, one, {"directory": "same"}, other)
    assert len(found._outboxes) == 2


def test_listeners_that_share_it_and_disagree(tmp_path):
    """… are told so: it is unclear which of them is meant."""
    with pytest.raises(Unusable, match=r"outbox: another listener has outbox with"):
        service(
            tmp_path, {"directory": "outbox"}, {"directory": "outbox", "remember": "1d"}
        )


@pytest.mark.parametrize("inside", ["outbox/team", "link"])
def test_an_outbox_inside_another(tmp_path, inside):
    """Both would take its files: the gateway does not start, a link or not."""
    (tmp_path / "outbox" / "team").mkdir(parents=True)
    (tmp_path / "link").symlink_to("outbox/team", target_is_directory=True)
    for first, second in (("outbox", inside), (inside, "outbox")):
        with pytest.raises(Unusable, match=r"overlaps with .*: files would be taken"):
            service(tmp_path, {"directory": first}, {"directory": second})


def test_a_stop_ends_all_outboxes_at_once(tmp_path):
    """Each has its seconds from the same moment, and takes no other file."""
    found = service(tmp_path, {"directory": "one"}, {"directory": "other"})
    for outbox in found._outboxes:
        outbox._stopped = Deferred()
    stopped = Deferred.fromCoroutine(found.stop())
    assert not stopped.called
    assert None not in [outbox._stop_by for outbox in found._outboxes]


def test_what_is_wrong_is_told(tmp_path):
    """For the first sentence that is said of the gateway."""
    found = service(tmp_path, {"directory": "outbox"}, None)
    [section] = found.statistics()
    assert section.troubles == []
    [outbox] = found._outboxes
    outbox.folder.prepare()
    (tmp_path / "outbox" / "a.csv").write_bytes(b"no")
    assert outbox.folder.take() is None
    [section] = found.statistics()
    [told] = section.troubles
    assert told.startswith("the outbox's newest file, a.csv, was set aside unread: ")


def lobbies(data_dir: Path, *lobbies: dict[str, Any] | None) -> list[Any]:
    """So many listeners, each with its lobby."""
    return [listener_of(protocol, data_dir, {"lobby": one}, {}) for one in lobbies]


def test_listeners_are_in_one_lobby(tmp_path):
    """… or leave it out; another one is refused by its place."""
    one, other = {"gateways": ["unix:/a"]}, {"gateways": ["unix:/b"]}
    fine = dict(enumerate(lobbies(tmp_path, None, one, None, one)))
    assert list(protocol.misfits(fine)) == []
    found = dict(enumerate(lobbies(tmp_path, None, one, other)))
    [(place, why)] = protocol.misfits(found)
    assert place == ("listeners", 2, "options", "lobby")
    assert why.startswith("must be as in listeners[1], or absent")


def test_a_reload_changes_the_lobby(tmp_path):
    """… at once; one that can not be leaves it as it was, and is told."""
    listeners = lobbies(tmp_path, {"gateways": ["unix:/a"]})
    found = protocol.service(lend(protocol, tmp_path, listeners))
    assert isinstance(found, PomeloService)
    assert [one.address for one in found.lobby.others] == ["unix:/a"]
    listeners[:] = lobbies(tmp_path, {"gateways": ["unix:/a", "http://b:1"]})
    assert list(found.reload()) == []
    assert [one.address for one in found.lobby.others] == ["unix:/a", "http://b:1"]
    (tmp_path / "ca.pem").write_text("-----END CERTIFICATE-----")
    bad = {"gateways": ["https://c"], "ca": str(tmp_path / "ca.pem")}
    listeners[:] = lobbies(tmp_path, bad)
    [why] = found.reload()
    assert why.startswith("options.lobby.ca: ")
    assert len(found.lobby.others) == 2
    with pytest.raises(Unusable, match=r"options\.lobby\.ca"):
        protocol.service(lend(protocol, tmp_path, listeners))


def test_the_table_of_statistics(tmp_path):
    """Each number has its own key and its own metric, and can be shown."""
    [section] = service(tmp_path, None).statistics()
    assert len(section.by_name) == len(section.values) == 19
    assert len({one.name for one, _ in section.values}) == 19


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
