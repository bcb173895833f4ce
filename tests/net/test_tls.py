"""TLS against the standard library's client, sessions that are resumed, and renewed
certificates; each workaround has its test.
"""

import ctypes
import gc
import ssl
import time
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from OpenSSL import SSL
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.internet.ssl import PrivateCertificate
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory

from gateway.config.listener import ProxyProtocol
from gateway.net import layers
from gateway.net.openssl_internals import renew_buffers
from gateway.net.reading import LAYERED_READ_BYTES
from gateway.net.tls import ServerTls, UnusableCertificate
from gateway_testkit.certificates import Authority
from making import Make
from tls_clients import VERSIONS, WEB_1, admitted, resumed


@pytest.fixture
def connected(make_net, make_tls, tls_peer) -> Make:
    """A listener, and a client of it that has shaken hands."""

    def make(offered: list[str] | None = None, **keywords: Any) -> tuple[Any, Any]:
        net = make_net(tls=make_tls(), keywords=keywords)
        client = tls_peer(net.peer(), alpn=offered)
        client.shake_hands()
        return net, client

    return make


def test_bytes_go_both_ways(tls_net, tls_peer):
    """The server is made when the handshake is done, and knows the version."""
    peer = tls_net.peer()
    assert tls_net.servers == []
    client = tls_peer(peer)
    client.shake_hands()
    assert tls_net.server.connection.origin.attributes == {"tls": "TLSv1.3"}
    assert tls_net.server.connection.origin.principal is None
    client.send(b"2W\0\0\0\1")
    assert tls_net.server.data == b"2W\0\0\0\1"
    tls_net.server.connection.write(b"2A\0\0\0\1")
    assert client.read() == b"2A\0\0\0\1"


def test_records_of_one_read_come_as_one_chunk(connected):
    """A decoder is called once per read of the socket, not once per 16 KiB."""
    net, client = connected()
    client.send(bytes(100_000))
    assert [len(chunk) for chunk in net.server.chunks] == [100_000]


def test_a_proxy_header_comes_before_tls(make_net, make_tls, tls_peer):
    """As HAProxy and ELB send it in TCP mode, in one segment with the ClientHello."""
    net = make_net(tls=make_tls(), proxy_protocol=ProxyProtocol(trusted=["10.0.0.1"]))
    peer = net.peer("10.0.0.1")
    peer.send(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 ")
    send = peer.connection.input.dataReceived
    first = [b"5044\r\n"]
    peer.send = lambda data: send((first.pop() if first else b"") + data)  # type: ignore[method-assign]
    client = tls_peer(peer)
    client.shake_hands()
    client.send(b"2W")
    assert net.server.connection.origin.peer == "192.0.2.7:40000"
    assert net.server.data == b"2W"


def test_close_sends_close_notify_and_fin(connected):
    """What was written arrives, then close_notify, then FIN."""
    net, client = connected()
    net.server.connection.write(b"ack")
    net.server.connection.close()
    assert client.peer.transport.finished
    assert client.read() == b"ack"
    assert client.tls.read() == b""  # the end, not "nothing yet"


def test_a_peers_close_notify_ends_it(connected):
    """Its last bytes are still delivered."""
    net, client = connected()
    client.tls.write(b"last")
    client.close_notify()
    assert net.server.data == b"last"
    assert client.peer.transport.finished
    client.peer.lose()
    assert net.server.gone


def test_a_client_that_offers_h2_is_let_in(connected):
    """ALPN without overlap is no reason to hang up."""
    net, client = connected(["h2", "http/1.1"])
    assert client.tls.selected_alpn_protocol() is None
    client.send(b"2W")
    assert net.server.data == b"2W"


def test_our_own_alpn_name_is_chosen(connected):
    """In our order, if the client offers it."""
    _, client = connected(["h2", "rsio/0"], alpn=[b"rsio/0"])
    assert client.tls.selected_alpn_protocol() == "rsio/0"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_twisted_itself_still_kills_a_client_that_offers_h2(make_tls, authority):
    """Why we set our own ALPN callback.  When this fails, Twisted has been repaired."""
    tls = make_tls()
    pem = tls.certificate.read_text() + tls.private_key.read_text()
    options = PrivateCertificate.loadPEM(pem).options()
    factory = TLSMemoryBIOFactory(options, False, ServerFactory(), Clock())
    server, wire = factory.protocol(factory, Protocol()), StringTransport()
    server.makeConnection(wire)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.set_alpn_protocols(["h2"])
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    server.dataReceived(outgoing.read())
    incoming.write(wire.value())
    with pytest.raises(ssl.SSLError, match=r"(?i)internal.error"):
        client.do_handshake()


def test_a_client_that_does_not_trust_us_says_so(tls_net, tls_peer, tmp_path, warnings):
    """The line tells its reason, and that it is the client's."""
    client = tls_peer(tls_net.peer(), trusts=Authority(tmp_path / "another"))
    assert not admitted(tls_net, client)
    client.peer.send(client.alert())
    client.peer.lose()
    [line] = warnings()
    assert "the client does not go on: " in line
    assert "alert" in line


def test_old_versions_are_refused(make_net, make_tls, tls_peer, warnings):
    """minimum_version holds: a client of TLS 1.2 against a listener of 1.3."""
    net = make_net(tls=make_tls(minimum_version="TLSv1.3"))
    client = tls_peer(net.peer(), newest=ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        client.shake_hands()
    client.peer.lose()
    assert "unsupported protocol" in warnings()[0]


def test_nobody_renegotiates(tls_net, warnings):
    """A client of TLS 1.2 that begins a second handshake gets none: it costs us more."""
    peer = tls_net.peer()
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    client = SSL.Connection(context, None)
    client.set_connect_state()

    def pump() -> None:
        for _ in range(4):
            with suppress(SSL.WantReadError):
                client.do_handshake()
            with suppress(SSL.WantReadError):
                peer.send(client.bio_read(1 << 16))
            if answer := peer.got():
                client.bio_write(answer)

    pump()
    assert tls_net.server.connection.origin.attributes == {"tls": "TLSv1.2"}
    assert client.renegotiate()
    with pytest.raises(SSL.Error, match="no renegotiation"):
        pump()


class KeyChanger:
    """A client of TLS 1.3 that says nothing and changes its keys, which Python can not."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        _ssl = pytest.importorskip("_ssl")
        self.openssl = ctypes.CDLL(getattr(_ssl, "__file__", None))
        if not hasattr(self.openssl, "SSL_key_update"):
            pytest.skip("Python's OpenSSL is built into it")
        context = self._made("SSL_CTX_new", self._made("TLS_client_method"))
        self.tls = self._made("SSL_new", context)
        self.into, self.out = (
            self._made("BIO_new", self._made("BIO_s_mem")) for _ in range(2)
        )
        self.openssl.SSL_set_bio(self.tls, self.into, self.out)
        self.openssl.SSL_set_connect_state(self.tls)
        for _ in range(3):
            self.openssl.SSL_do_handshake(self.tls)
            self._send_on()
            answer = self.peer.got()
            self.openssl.BIO_write(self.into, answer, len(answer))

    def _made(self, name: str, *of: ctypes.c_void_p) -> ctypes.c_void_p:
        call = getattr(self.openssl, name)
        call.restype = ctypes.c_void_p
        return ctypes.c_void_p(call(*of))

    def _send_on(self) -> None:
        buffer = ctypes.create_string_buffer(1 << 16)
        size = self.openssl.BIO_read(self.out, buffer, 1 << 16)
        if size > 0:
            self.peer.send(buffer.raw[:size])

    def send(self, data: bytes) -> None:
        self.openssl.SSL_write(self.tls, data, len(data))
        self._send_on()

    def change_keys(self, times: int) -> None:
        for _ in range(times):
            assert self.openssl.SSL_key_update(self.tls, 0) == 1
            self.openssl.SSL_do_handshake(self.tls)
        self._send_on()


def test_new_keys_without_end_are_refused(tls_net, warnings):
    """They cost us ten times what they cost a peer, and bring nothing."""
    client = KeyChanger(tls_net.peer())
    for _ in range(5):
        client.change_keys(500)
        client.send(b"x")
    assert tls_net.server.data == b"xxxxx"
    assert not client.peer.transport.finished
    for _ in range(5):
        client.change_keys(500)
    assert client.peer.transport.finished
    [line] = warnings()
    assert "TLS without data: new keys again and again, or empty records" in line
    assert "limit 65536 bytes" in line
    assert tls_net.listener.rejected == {"tls": 1}


def test_a_handshake_is_no_part_of_what_has_no_data(tls_net, tls_peer, monkeypatch):
    """Certificates may be long; what comes in pieces behind them is data all the same."""
    monkeypatch.setattr(layers, "_BARE_BYTES", 64)
    client = tls_peer(tls_net.peer())
    client.shake_hands()
    client.tls.write(bytes(40))
    record = client._out.read()
    client.peer.send(record[:32])
    client.peer.send(record[32:])
    assert tls_net.server.data == bytes(40)


def test_a_large_record_may_come_a_byte_at_a_time(tls_net, tls_peer):
    """It has no data before it is whole."""
    client = tls_peer(tls_net.peer())
    client.shake_hands()
    peer = client.peer
    slow: list[bytes] = []
    send, peer.send = peer.send, slow.append
    for _ in range(3):
        client.send(bytes(16_000))
    for byte in b"".join(slow):
        send(bytes([byte]))
    assert len(tls_net.server.data) == 48_000


class _Heap(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int:
    """What malloc has given out, OpenSSL's structures and buffers among it."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("no glibc of 2.33 or later")
    libc.mallinfo2.restype = _Heap
    gc.collect()
    found = libc.mallinfo2()
    return int(found.uordblks + found.hblkhd)


@pytest.mark.parametrize(
    ("certified", "said", "most"),
    [(False, 0, 24), (False, 64_000, 24), (True, 0, 34), (True, 64_000, 34)],
)
def test_an_idle_connection_holds_little(
    make_net, make_tls, tls_peer, authority, certified, said, most
):
    """KiB of OpenSSL's: its buffers go with what was in them, however much that was.

    It keeps the client's key of the handshake: 7 KiB where that is of ML-KEM, too.
    """
    section = (
        {"client_auth": "required", "client_ca": authority.ca} if certified else {}
    )
    net = make_net(tls=make_tls(**section))
    cert = authority.issue("web-1") if certified else None

    def come() -> Any:
        client = tls_peer(net.peer(), cert=cert)
        client.shake_hands()
        client.send(bytes(said))
        net.server.chunks.clear()
        net.server.connection.write(bytes(said))
        client.read()
        return client.peer

    kept = [come() for _ in range(10)]
    net.pass_time(3)
    before = heap_bytes()
    kept += [come() for _ in range(50)]
    net.pass_time(3)
    agreed = (
        next(iter(net.listener._connections))
        .layers.tls._above.getHandle()
        .get_group_name()
    )
    most += 7 if "MLKEM" in agreed else 0
    assert (heap_bytes() - before) / 50 < most * 1024, (
        (heap_bytes() - before) / 50 / 1024
    )


def test_buffers_are_renewed_between_records(tls_net, tls_peer):
    """Nothing is lost of a record that is half here; and nothing where what we use of
    pyOpenSSL is not there, which is a matter of memory alone.
    """
    client = tls_peer(tls_net.peer())
    client.shake_hands()
    [connection] = tls_net.listener._connections
    said = []
    for at in range(40):
        client.tls.write(bytes([at]) * 1000)
        record = client._out.read()
        for cut in range(0, len(record), 97 + at):
            client.peer.send(record[cut : cut + 97 + at])
            assert renew_buffers(connection.layers.tls._above.getHandle())
        said.append(bytes([at]) * 1000)
        tls_net.server.connection.write(b"answer")
        assert client.read() == b"answer"
    assert tls_net.server.data == b"".join(said)
    handle = connection.layers.tls._above.getHandle()
    handle.bio_write(b"\x17")
    assert not renew_buffers(handle)
    assert not renew_buffers(SimpleNamespace())


def test_little_is_read_at_once(tls_net, tls_peer):
    """The least records take long, before a turn can count what is in them."""
    client = tls_peer(tls_net.peer())
    assert client.peer.transport.read_bytes == LAYERED_READ_BYTES
    client.shake_hands()
    client.send(b"x")
    assert client.peer.transport.read_bytes == LAYERED_READ_BYTES


def test_plain_bytes_on_a_tls_port_are_named(tls_net, warnings):
    """HTTP gets an answer in HTTP; anything else is quoted."""
    browser, shipper = tls_net.peer("192.0.2.1"), tls_net.peer("192.0.2.2")
    browser.send(b"GET / HTTP/1.1\r\n\r\n")
    assert b"an HTTP request on a port that speaks TLS" in browser.got()
    shipper.send(b"2W\0\0\0\1")
    assert shipper.transport.finished
    assert repr(b"2W\0\0\0\1") in warnings()[1]
    assert "expects TLS (tls)" in warnings()[1]
    assert tls_net.servers == []


def test_garbage_after_a_hello_is_a_failed_handshake(tls_net, warnings):
    """One line with OpenSSL's reason."""
    peer = tls_net.peer()
    peer.send(b"\x16\x03\x01\x00\x05hello")
    assert peer.transport.finished
    peer.lose()
    assert warnings()[0].startswith(
        "beats: 192.0.2.1:4000 refused: TLS handshake failed: "
    )


def test_a_stalled_handshake_is_cut_off(tls_net, warnings):
    """Twisted has no deadline for it; limits.handshake is one."""
    peer = tls_net.peer()
    peer.send(b"\x16\x03\x01")
    tls_net.pass_time(13)
    assert peer.transport.finished
    assert warnings()[0].endswith("limit 10 s (limits.handshake)")


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (b"", []),
        (
            b"GET ",
            [
                "beats: 10.0.0.1:4000 refused: handshake not finished, limit 10 s (limits.handshake)"
            ],
        ),
    ],
)
def test_a_spare_connection_is_ended_quietly(
    said, lines, make_net, tls, tls_peer, warnings
):
    """As browsers keep one to where they have a WebSocket: TLS is agreed upon, and nothing is asked.  Who has begun to
    speak and does not go on is told of.
    """
    net = make_net(tls=tls, websocket=SimpleNamespace(path="/", origins=[]))
    client = tls_peer(net.peer("10.0.0.1"))
    client.shake_hands()
    if said:
        client.send(said)
    net.pass_time(13)
    assert client.peer.transport.finished
    assert warnings() == lines
    assert net.listener.rejected == {"handshake": 1}


def test_a_probe_of_a_tls_port_leaves_no_line(tls_net, warnings):
    """Connect and close, before or in the handshake."""
    tls_net.peer().lose()
    begun = tls_net.peer()
    begun.send(b"\x16\x03\x01")
    begun.lose()
    assert warnings() == []


@pytest.mark.parametrize("polite", [False, True])
def test_a_probe_that_shakes_hands_leaves_no_line(tls_net, tls_peer, logged, *, polite):
    """As HAProxy looks each second at a server that it reaches over TLS."""
    tls_net.listener.connection_log.configure(lines=9, opened=False)
    probe = tls_peer(tls_net.peer())
    probe.shake_hands()
    if polite:
        probe.close_notify()
    probe.peer.lose()
    assert logged == []
    client = tls_peer(tls_net.peer())
    client.shake_hands()
    client.send(b"2")
    client.peer.lose()
    assert len(logged) == 1


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
