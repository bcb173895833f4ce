"""Sessions that are resumed, and certificates that are renewed under them."""

import ssl
import time
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from twisted.internet.task import Clock

from gateway.net.tls import ServerTls, UnusableCertificate
from gateway_testkit.certificates import Authority
from tls_clients import VERSIONS, WEB_1, admitted, resumed


@VERSIONS
def test_a_session_is_resumed(tls_net, tls_peer, newest):
    """Who comes again brings a ticket, and so without end."""
    client = tls_peer(tls_net.peer(), newest=newest)
    client.shake_hands()
    assert not client.tls.session_reused
    for _ in range(3):
        client = resumed(tls_net, client)
        assert client.tls.session_reused
        client.send(b"2W\0\0\0\1")
        assert tls_net.server.data == b"2W\0\0\0\1"
        version = tls_net.server.connection.origin.attributes["tls"]
        assert version == newest.name.replace("_", ".")


@VERSIONS
@pytest.mark.parametrize("client_auth", ["optional", "required"])
def test_a_resumed_session_has_its_principal(
    mutual, tls_peer, authority, client_auth, newest
):
    """The ticket says whose certificate it was."""
    net = mutual(client_auth)
    pair = authority.issue("web-1", subject=WEB_1)
    client = tls_peer(net.peer(), cert=pair, newest=newest)
    assert admitted(net, client)
    again = resumed(net, client)
    assert again.tls.session_reused
    assert net.server.connection.origin.principal == "CN=web-1,O=Test"


@VERSIONS
def test_a_reload_ends_all_sessions(mutual, tls_peer, authority, tmp_path, newest):
    """So nobody comes in by an authority that is in `client_ca` no longer."""
    net = mutual("required")
    pair = authority.issue("web-1", subject=WEB_1)
    client = tls_peer(net.peer(), cert=pair, newest=newest)
    assert admitted(net, client)
    net.listener.reload()
    again = client.again(net.peer())
    assert admitted(net, again)
    assert not again.tls.session_reused
    client = again
    authority.ca.write_bytes(Authority(tmp_path / "another").ca.read_bytes())
    net.pass_time(6)
    served = len(net.servers)
    admitted(net, client.again(net.peer()))
    assert len(net.servers) == served


@VERSIONS
def test_keys_of_tickets_are_changed(tls_net, tls_peer, newest, logged):
    """Every few hours, without a word: then the next handshake is a whole one."""
    client = tls_peer(tls_net.peer(), newest=newest)
    client.shake_hands()
    tls_net.pass_time(3600)
    client = resumed(tls_net, client)
    assert client.tls.session_reused
    tls_net.pass_time(4 * 3600)
    client = resumed(tls_net, client)
    assert not client.tls.session_reused
    assert resumed(tls_net, client).tls.session_reused
    assert not any("reloaded" in (event["log_format"] or "") for event in logged)


def test_a_session_is_of_one_listener(make_net, make_tls, tls_peer, authority):
    """A ticket of a port without client certificates opens none that needs one."""
    lax = make_net(tls=make_tls())
    client = tls_peer(lax.peer(), newest=ssl.TLSVersion.TLSv1_2)
    client.shake_hands()
    strict = make_net(tls=make_tls(client_auth="required", client_ca=authority.ca))
    assert not admitted(strict, client.again(strict.peer()))
    assert strict.servers == []


def test_a_certificate_that_expires_resumes_nothing(
    mutual, tls_peer, authority, warnings
):
    """Its ticket may be younger than its end: that is looked at each time."""
    net = mutual("required")
    net.clock.advance(time.time() - net.clock.seconds())
    pair = authority.issue("web-1", subject=WEB_1, valid=timedelta(hours=1))
    client = tls_peer(net.peer(), cert=pair)
    assert admitted(net, client)
    net.clock.advance(3700)
    served = len(net.servers)
    resumed(net, client)
    assert len(net.servers) == served
    assert warnings()[0].endswith("client certificate 'CN=web-1,O=Test' has expired")


def serial(client: Any) -> int:
    client.shake_hands()
    return x509.load_der_x509_certificate(
        client.tls.getpeercert(binary_form=True)
    ).serial_number


def test_a_new_certificate_is_served_without_restart(tls_net, tls_peer, authority):
    """Within seconds of the change; old connections go on unharmed."""
    old = tls_peer(tls_net.peer())
    first = serial(old)
    authority.issue("server")
    tls_net.pass_time(6)
    assert serial(tls_peer(tls_net.peer())) != first
    old.send(b"still here")
    assert tls_net.servers[0].data == b"still here"


def test_a_broken_new_certificate_is_not_used(
    tls, tls_net, tls_peer, authority, warnings
):
    """The old one stays, one line says why, and the next good one is taken."""
    first = serial(tls_peer(tls_net.peer()))
    good = tls.private_key.read_bytes()
    tls.private_key.write_bytes(b"half a fi")
    tls_net.pass_time(20)
    assert serial(tls_peer(tls_net.peer())) == first
    [line] = warnings()
    assert line.startswith("beats: new certificate not used, the old one stays: ")
    assert "server.key" in line
    tls.private_key.write_bytes(good)
    tls_net.pass_time(6)
    assert serial(tls_peer(tls_net.peer())) == first
    authority.issue("server")
    tls_net.pass_time(6)
    assert serial(tls_peer(tls_net.peer())) != first
    assert len(warnings()) == 1


def test_a_key_of_another_certificate_is_not_used(
    tls, tls_net, tls_peer, authority, warnings
):
    """Half a renewal: the certificate is new, the key is not yet."""
    first = serial(tls_peer(tls_net.peer()))
    other, _ = authority.issue("other")
    other.replace(tls.certificate)
    tls_net.listener.reload()
    assert serial(tls_peer(tls_net.peer())) == first
    assert "key" in warnings()[0]


def test_reload_reads_even_what_looks_unchanged(tls_net, logged):
    tls_net.listener.reload()
    assert any("reloaded" in (event["log_format"] or "") for event in logged)


@pytest.mark.parametrize("which", ["certificate", "private_key", "client_ca"])
def test_a_missing_file_is_named(which, make_tls, authority, tmp_path):
    """At the start there is nothing to fall back to."""
    tls = make_tls(client_auth="required", client_ca=authority.ca)
    setattr(tls, which, tmp_path / "missing.pem")
    with pytest.raises(UnusableCertificate, match=r"missing\.pem: "):
        ServerTls("beats", tls, Clock())


def test_an_encrypted_key_is_refused_without_asking(make_tls, authority):
    """OpenSSL would wait for a pass phrase at the terminal."""
    from cryptography.hazmat.primitives import serialization

    tls = make_tls()
    key = serialization.load_pem_private_key(tls.private_key.read_bytes(), None)
    tls.private_key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(UnusableCertificate, match=r"server\.key"):
        ServerTls("beats", tls, Clock())
