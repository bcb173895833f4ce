"""Clients' certificates: whose are taken, under which name, and which are revoked."""

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.config.listener import ProxyProtocol
from gateway.net.proxy import SIGNATURE_V2
from gateway.net.tls import ServerTls, UnusableCertificate, _note_why
from gateway_testkit.certificates import Authority
from making import Make
from tls_clients import TEST, VERSIONS, WEB_1, admitted, resumed


def test_a_missing_certificate_is_refused(mutual, tls_peer, warnings):
    """With TLS's own alert and one line that has the reason."""
    net = mutual("required")
    peer = net.peer()
    assert not admitted(net, tls_peer(peer))
    peer.lose()
    assert net.servers == []
    [line] = warnings()
    assert line.startswith("beats: 192.0.2.1:4000 refused: TLS handshake failed: ")
    assert "peer did not return a certificate" in line
    assert net.listener.rejected == {"tls": 1}


def test_an_optional_certificate_may_be_missing(mutual, tls_peer, authority):
    """With one there is a principal, without there is none."""
    net = mutual("optional")
    assert admitted(net, tls_peer(net.peer()))
    assert net.server.connection.origin.principal is None
    assert admitted(
        net, tls_peer(net.peer(), cert=authority.issue("web-1", subject=WEB_1))
    )
    assert net.server.connection.origin.principal == "CN=web-1,O=Test"


@pytest.mark.parametrize("client_auth", ["optional", "required"])
def test_a_certificate_of_another_authority_is_refused(
    client_auth, mutual, tls_peer, tmp_path, warnings
):
    """Even where none is needed."""
    net = mutual(client_auth)
    stranger = Authority(tmp_path / "of the same name")
    client = tls_peer(net.peer(), cert=stranger.issue("web-1"))
    assert not admitted(net, client)
    assert net.servers == []
    client.peer.lose()
    [line] = warnings()
    assert "'CN=web-1' is signed by no authority of tls.client_ca" in line


def test_an_expired_certificate_is_refused(mutual, tls_peer, authority, warnings):
    """The line says whose, and that it has expired."""
    net = mutual("required")
    old = authority.issue("web-1", subject=WEB_1, valid=timedelta(minutes=-5))
    peer = net.peer()
    assert not admitted(net, tls_peer(peer, cert=old))
    peer.lose()
    [line] = warnings()
    assert line.endswith("client certificate 'CN=web-1,O=Test' has expired")


@pytest.mark.parametrize(
    ("allowed", "welcome"),
    [
        ("web-1", True),
        ("CN=web-1,O=Test", True),
        ("WEB-1.example", True),
        ("web-2", False),
        ("web", False),
        ("*.example", True),
        ("*.other", False),
        ("*.1.example", False),
    ],
)
def test_only_allowed_names_may_connect(
    allowed, welcome, mutual, tls_peer, authority, warnings
):
    """Common name, subject or alternative name; others get one line with the key."""
    net = mutual("required", "somebody", allowed)
    certificate = authority.issue("web-1", subject=WEB_1, dns=["web-1.example"])
    assert admitted(net, tls_peer(net.peer(), cert=certificate)) == welcome
    assert len(net.servers) == welcome
    if not welcome:
        [line] = warnings()
        assert "'CN=web-1,O=Test' is not an allowed one (tls.allowed_names)" in line


@pytest.mark.parametrize(
    ("client_auth", "allowed", "client", "principal"),
    [
        ("required", ["web-1"], WEB_1, "CN=web-1"),
        ("required", [], WEB_1, "CN=web-1"),
        (
            "required",
            ["balancer"],
            WEB_1,
            "certificate of 'CN=web-1' is not an allowed",
        ),
        ("required", [], "", "no client certificate at its balancer (tls.client_auth)"),
        ("optional", ["web-1"], "", None),
        ("required", [], None, "CN=balancer"),
    ],
)
def test_behind_a_balancer_the_name_is_its_clients(
    make_net,
    make_tls,
    tls_peer,
    authority,
    warnings,
    client_auth,
    allowed,
    client,
    principal,
):
    """It ends their TLS, says who they are, and speaks TLS with us; its own certificate
    is the client's where it ends none.
    """
    tls = make_tls(
        client_auth=client_auth, client_ca=authority.ca, allowed_names=allowed
    )
    proxy = ProxyProtocol(trusted=["10.0.0.1"], names=True)
    net = make_net(tls=tls, proxy_protocol=proxy)
    peer = net.peer("10.0.0.1")
    said = b"" if client is None else b"\x20\0\5\1\0\0\0\0"
    if client == WEB_1:
        said = b"\x20\0\x0d\7\0\0\0\0\x22\0\5web-1"
    body = bytes(12) + said
    peer.send(SIGNATURE_V2 + b"\x21\x11" + len(body).to_bytes(2) + body)
    assert admitted(net, tls_peer(peer, cert=authority.issue("balancer"))) == (
        principal is None or principal.startswith("CN=")
    )
    if net.servers:
        assert net.server.connection.origin.principal == principal
    else:
        assert principal is not None
        assert principal in warnings()[0]


@pytest.mark.parametrize(
    ("name", "welcome"),
    [
        ("web-1.shop.example", True),
        ("WEB_2.Shop.example", True),
        ("*.shop.example", True),
        ("shop.example", False),
        (".shop.example", False),
        ("a.b.shop.example", False),
        ("web-1.shop.example.org", False),
        ("eve@web-1.shop.example", False),
        ("O=x,CN=web-1.shop.example", False),
    ],
)
def test_a_star_is_one_label(mutual, tls_peer, authority, name, welcome):
    """As in a certificate: the first, and all of it."""
    net = mutual("required", "*.shop.example")
    assert admitted(net, tls_peer(net.peer(), cert=authority.issue(name))) == welcome


def test_a_certificate_without_common_name_has_a_subject(mutual, tls_peer, authority):
    """And may be allowed by its alternative name."""
    net = mutual("required", "web-1.example")
    certificate = authority.issue("web-1", subject=TEST, dns=["web-1.example"])
    assert admitted(net, tls_peer(net.peer(), cert=certificate))
    assert net.server.connection.origin.principal == "O=Test"


# Revoked certificates


@pytest.fixture
def crl(tmp_path) -> Path:
    """The file of `client_crl`."""
    return tmp_path / "crl.pem"


@pytest.fixture
def revoking(make_net, make_tls, authority, crl) -> Make:
    """A listener that wants certificates, and looks them up in a file."""

    def make(expired: str = "refuse", client_ca: Any = None) -> Any:
        tls = make_tls(
            client_auth="required",
            client_ca=client_ca or authority.ca,
            crl_files=[crl],
            client_crl_expired=expired,
        )
        return make_net(tls=tls)

    return make


@VERSIONS
def test_a_revoked_certificate_is_refused(
    revoking, tls_peer, authority, crl, warnings, newest
):
    """In the handshake; another one of its authority is let in."""
    bad, good = authority.issue("web-1"), authority.issue("web-2")
    crl.write_bytes(authority.revoke(bad.certificate))
    net = revoking()
    client = tls_peer(net.peer(), cert=bad, newest=newest)
    assert not admitted(net, client)
    assert net.servers == []
    client.peer.lose()
    [line] = warnings()
    assert line.endswith("client certificate 'CN=web-1' is revoked")
    assert admitted(net, tls_peer(net.peer(), cert=good, newest=newest))


@VERSIONS
def test_a_ticket_of_before_the_revocation_is_worth_nothing(
    revoking, tls_peer, authority, crl, newest
):
    """A CRL that changes is read again, and is looked at by who comes again, too."""
    pair = authority.issue("web-1")
    crl.write_bytes(authority.revoke())
    net = revoking()
    client = tls_peer(net.peer(), cert=pair, newest=newest)
    assert admitted(net, client)
    client = resumed(net, client)
    assert client.tls.session_reused
    crl.write_bytes(authority.revoke(pair.certificate))
    net.pass_time(6)
    served = len(net.servers)
    admitted(net, client.again(net.peer()))
    assert len(net.servers) == served


def test_a_ticket_ends_with_the_crl(revoking, tls_peer, authority, crl):
    """From then on the whole handshake says who may come in."""
    crl.write_bytes(authority.revoke(valid=timedelta(hours=1)))
    net = revoking()
    net.clock.advance(time.time() - net.clock.seconds())
    net.listener.reload()
    client = tls_peer(net.peer(), cert=authority.issue("web-1"))
    assert admitted(net, client)
    net.pass_time(60)
    client = resumed(net, client)
    assert client.tls.session_reused
    net.clock.advance(3600)
    net.pass_time(6)
    client = resumed(net, client)
    assert not client.tls.session_reused
    assert resumed(net, client).tls.session_reused


@pytest.mark.parametrize("expired", ["refuse", "accept"])
def test_a_crl_that_has_expired(revoking, tls_peer, authority, crl, warnings, expired):
    """It refuses all of its authority, or those that it has."""
    bad, good = authority.issue("web-1"), authority.issue("web-2")
    crl.write_bytes(authority.revoke(bad.certificate, valid=timedelta(minutes=-5)))
    net = revoking(expired)
    assert net.listener.crl_end.refuses == (expired == "refuse")
    client = tls_peer(net.peer(), cert=good)
    assert admitted(net, client) == (expired == "accept")
    client.peer.lose()
    if expired == "refuse":
        end = "'CN=web-2' is of an authority whose CRL in tls.client_crl has expired"
        assert warnings()[0].endswith(end)
    served = len(net.servers)
    admitted(net, tls_peer(net.peer(), cert=bad))
    assert len(net.servers) == served


def test_an_authority_without_a_crl(
    revoking, tls_peer, authority, crl, warnings, tmp_path
):
    """Nobody knows what it has revoked; nor by a CRL that another has signed for it."""
    other = Authority(tmp_path / "other", "other")
    both = tmp_path / "both.pem"
    both.write_bytes(authority.ca.read_bytes() + other.ca.read_bytes())
    crl.write_bytes(authority.revoke())
    net = revoking(client_ca=both)
    pair = other.issue("web-1")
    client = tls_peer(net.peer(), cert=pair)
    assert not admitted(net, client)
    client.peer.lose()
    assert "has no CRL in tls.client_crl" in warnings()[0]
    forged = Authority(tmp_path / "forged", "other").revoke()
    crl.write_bytes(authority.revoke() + forged)
    net.pass_time(6)
    client = tls_peer(net.peer("192.0.2.2"), cert=pair)
    assert not admitted(net, client)
    client.peer.lose()
    assert "tls.client_crl" in warnings()[1]
    crl.write_bytes(authority.revoke() + other.revoke())
    net.pass_time(6)
    assert admitted(net, tls_peer(net.peer(), cert=pair))


def test_an_intermediate_is_looked_up_where_its_crl_is(
    revoking, tls_peer, authority, crl, warnings, tmp_path
):
    """Its own CRL is enough; with that of the root it may be revoked itself."""
    below = Authority(tmp_path / "below", "below", authority)
    pair = below.issue("web-1")
    with pair.certificate.open("ab") as file:
        file.write(below.ca.read_bytes())
    crl.write_bytes(below.revoke())
    net = revoking()
    assert admitted(net, tls_peer(net.peer(), cert=pair))
    crl.write_bytes(below.revoke() + authority.revoke())
    net.pass_time(6)
    assert admitted(net, tls_peer(net.peer(), cert=pair))
    crl.write_bytes(below.revoke() + authority.revoke(below.ca))
    net.pass_time(6)
    client = tls_peer(net.peer(), cert=pair)
    assert not admitted(net, client)
    client.peer.lose()
    assert warnings()[0].endswith("authority 'CN=below' is revoked")


def test_a_broken_crl_is_not_used(revoking, tls_peer, authority, crl, warnings):
    """What was in force stays, and the line has the file."""
    pair = authority.issue("web-1")
    crl.write_bytes(authority.revoke(pair.certificate))
    net = revoking()
    for content in (b"", crl.read_bytes()[:200], crl.read_bytes().replace(b"M", b"!")):
        crl.write_bytes(content)
        net.pass_time(6)
        assert not admitted(net, tls_peer(net.peer(), cert=pair))
    lines = [line for line in warnings() if "old one stays" in line]
    assert len(lines) == 3
    assert all(f"client_crl: {crl}: " in line for line in lines)


def test_a_crl_among_the_authorities_is_refused(make_tls, authority):
    """There it would not be looked at."""
    with authority.ca.open("ab") as file:
        file.write(authority.revoke())
    tls = make_tls(client_auth="required", client_ca=authority.ca)
    with pytest.raises(UnusableCertificate, match=r"client_ca: .*tls\.client_crl"):
        ServerTls("beats", tls, Clock())


def test_a_certificate_that_can_not_be_read_is_rejected_as_any_other():
    """What is odd about it ends in the log's line, not in an error of ours."""
    noted: list[str] = []

    def unreadable() -> None:
        raise ValueError("no such country")

    odd = SimpleNamespace(to_cryptography=unreadable)
    connection: Any = SimpleNamespace(set_app_data=noted.append)
    assert _note_why(connection, odd, 10, 0, 0) is False
    assert noted == ["client certificate 'unreadable: no such country' has expired"]
