"""A port: who is let in, how it ends; real sockets where memory can not show it."""

from __future__ import annotations

import resource
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.address import IPv4Address

from gateway.interfaces import Refusal

Make = Callable[..., Any]
Run = Callable[..., dict[str, Any]]
Texts = Callable[[], list[str]]


def come(net: Any, host: str = "192.0.2.1") -> Any:
    return net.connect(IPv4Address("TCP", host, 4000))


# Admission


def test_more_connections_than_allowed_are_turned_away(
    make_net: Make, warnings: Texts
) -> None:
    """Counted, one line with the key; when one leaves, the next is let in."""
    net = make_net(limits={"connections": 2})
    one, _ = come(net, "192.0.2.1"), come(net, "192.0.2.2")
    assert come(net, "192.0.2.3") is None
    assert come(net, "192.0.2.3") is None
    assert net.listener.rejected == {"connections": 2}
    assert warnings() == [
        "beats: 192.0.2.3:4000 refused: too many connections, limit 2 (limits.connections)"
    ]
    one.lose()
    assert come(net, "192.0.2.3") is not None
    assert (net.listener.accepted, net.listener.connections) == (3, 2)


def test_one_peer_can_not_take_all(make_net: Make, warnings: Texts) -> None:
    """limits.connections_per_peer is by address; others still get in."""
    net = make_net(limits={"connections_per_peer": 2})
    peers = [come(net) for _ in range(3)]
    assert peers[2] is None
    assert come(net, "192.0.2.2") is not None
    assert net.listener.rejected == {"connections_per_peer": 1}
    assert warnings()[0].endswith("limit 2 (limits.connections_per_peer)")
    peers[0].lose()
    assert come(net) is not None


def test_behind_a_proxy_the_real_peer_counts(make_net: Make) -> None:
    """All connections come from the load balancer; the limit is not for it."""
    net = make_net(
        proxy_protocol=SimpleNamespace(trusted=["10.0.0.1"]),
        limits={"connections_per_peer": 2},
    )

    def announce(real: str) -> Any:
        peer = come(net, "10.0.0.1")
        peer.send(f"PROXY TCP4 {real} 198.51.100.1 1 2\r\n".encode())
        return peer

    first = announce("192.0.2.1")
    assert not announce("192.0.2.1").transport.finished
    assert announce("192.0.2.1").transport.finished
    assert not announce("192.0.2.2").transport.finished
    assert net.listener.rejected == {"connections_per_peer": 1}
    first.lose()
    assert not announce("192.0.2.1").transport.finished


def test_descriptors_are_left_for_the_disk(
    make_net: Make, monkeypatch: pytest.MonkeyPatch, warnings: Texts
) -> None:
    """A connection that would take one of the last ones is turned away."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4, 4))
    net = make_net()
    assert come(net) is None
    assert net.listener.rejected == {"descriptors": 1}
    assert warnings()[0].endswith("too many open files, limit 2")


# Drain


def test_drain_lets_servers_finish(make_net: Make) -> None:
    """It fires when the last connection is gone, and not before."""
    net = make_net()
    one, other = come(net, "192.0.2.1"), come(net, "192.0.2.2")
    done: list[None] = []
    net.listener.drain(5.0).addCallback(done.append)
    assert [server.drained for server in net.servers] == [True, True]
    one.lose()
    assert not done
    other.lose()
    assert done == [None]
    assert net.clock.getDelayedCalls() == []


def test_drain_of_nobody_is_done_at_once(make_net: Make) -> None:
    """Nothing to wait for, nothing left ticking."""
    net = make_net()
    done: list[None] = []
    net.listener.drain(5.0).addCallback(done.append)
    assert done == [None]
    assert net.clock.getDelayedCalls() == []


def test_whoever_does_not_finish_is_dropped(make_net: Make, warnings: Texts) -> None:
    """After the deadline; one that is still shaking hands is not waited for."""
    net = make_net(websocket=SimpleNamespace(path="/", origins=[]))
    peer = come(net)
    peer.send(b"GET / HTTP/1.1\r\nHost: gw\r\nUpgrade: websocket\r\n")
    done: list[None] = []
    net.listener.drain(5.0).addCallback(done.append)
    assert peer.transport.finished
    net.pass_time(1.5)
    assert peer.transport.disconnected
    net.pass_time(4)
    assert warnings() == ["beats: 1 connections did not finish in time"]
    peer.lose()
    assert done == [None]


@pytest.mark.parametrize("origins", [[], ["https://app.example"]])
def test_pages_that_may_connect(make_net: Make, origins: list[str]) -> None:
    """Any, unless the configuration names some."""
    upgrade = make_net(
        websocket=SimpleNamespace(path="/", origins=origins)
    ).listener.upgrade_parser()
    request = (
        b"GET / HTTP/1.1\r\nHost: gw\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Sec-WebSocket-Version: 13\r\nOrigin: https://other.example\r\n\r\n"
    )
    if origins:
        with pytest.raises(Refusal, match="page"):
            upgrade.feed(request)
    else:
        assert upgrade.feed(request) is not None


# Real sockets


def test_it_listens_and_says_where(with_reactor: Run) -> None:
    """Port 0 becomes the real one; who comes before `start` waits and is not lost."""
    result = with_reactor("""
        def talk():
            listener = make()
            in_reactor(listener.bind)
            result["address"] = listener.address
            client = socket.create_connection(where(listener))
            client.sendall(b"early")
            time.sleep(0.05)
            result["before"] = [listener.accepted, len(Echo.made)]
            in_reactor(listener.start)
            result["echo"] = client.recv(99).decode()
            result["after"] = listener.accepted
        run(talk)
    """)
    assert result["address"].startswith("127.0.0.1:")
    assert result["address"] != "127.0.0.1:0"
    assert result["before"] == [0, 0]
    assert result["echo"] == "early"
    assert result["after"] == 1


def test_a_port_that_is_taken_is_an_error_with_its_address(with_reactor: Run) -> None:
    """Listener, address and reason, for the daemon to exit with."""
    result = with_reactor("""
        def talk():
            taken = socket.create_server(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            result["port"] = port
            result["errors"] = []
            for listen in (f"tcp:127.0.0.1:{port}", "tcp:192.0.2.1:5044",
                           "systemd:nobody", "unix:/proc/nowhere/x"):
                listener = make(listen=listen)
                try:
                    in_reactor(listener.bind)
                except CannotListen as why:
                    result["errors"].append(str(why))
        run(talk)
    """)
    taken, foreign, systemd, unix = result["errors"]
    where = f"tcp:127.0.0.1:{result['port']}"
    assert taken == f"listener beats: {where}: Address already in use"
    assert foreign.startswith("listener beats: tcp:192.0.2.1:5044: Cannot assign")
    assert systemd == (
        "listener beats: systemd:nobody: no socket named 'nobody' was handed over"
    )
    assert unix.startswith("listener beats: unix:/proc/nowhere/x: No such file")


def test_a_bad_certificate_is_an_error_with_its_file(with_reactor: Run) -> None:
    """At the start, before anybody connects."""
    result = with_reactor("""
        def talk():
            tls = SimpleNamespace(certificate=Path("/no/cert.pem"),
                                  private_key=Path("/no/key.pem"), client_auth="none", client_ca=None, allowed_names=[],
                                  minimum_version="TLSv1.2")
            try:
                in_reactor(make(tls=tls).bind)
            except CannotListen as why:
                result["why"] = str(why)
        run(talk)
    """)
    assert result["why"].startswith("listener beats: tls: /no/cert.pem: ")


def test_unix_sockets(with_reactor: Run) -> None:
    """Mode 660; a dead one is replaced, a live one and a file are not; gone at stop."""
    result = with_reactor("""
        def fails(listener):
            try:
                in_reactor(listener.bind)
            except CannotListen as why:
                return str(why)

        def talk():
            path = os.environ["SCRATCH"] + "/gw.sock"
            dead = socket.socket(socket.AF_UNIX)
            dead.bind(path)
            dead.close()
            listener = make(listen=f"unix:{path}")
            in_reactor(listener.bind)
            in_reactor(listener.start)
            result["mode"] = oct(os.stat(path).st_mode & 0o777)
            result["address"] = listener.address == f"unix:{path}"
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            client.sendall(b"hello")
            result["echo"] = client.recv(99).decode()
            result["peer"] = Echo.made[0].connection.origin.peer
            result["live"] = fails(make(listen=f"unix:{path}"))
            in_reactor(listener.stop)
            result["left"] = os.path.exists(path)
            open(path, "w").close()
            result["file"] = fails(make(listen=f"unix:{path}"))
            result["kept"] = os.path.exists(path)
        run(talk)
    """)
    assert result["mode"] == "0o660"
    assert result["address"]
    assert result["echo"] == "hello"
    assert result["peer"].startswith("unix:uid=")
    assert result["live"].endswith("somebody listens there already")
    assert not result["left"]
    assert result["file"].endswith("is there already and is no socket")
    assert result["kept"]


def test_systemd_hands_over_a_socket(with_reactor: Run) -> None:
    """By its name, of whatever family; its address is reported."""
    result = with_reactor("""
        # What systemd does: sockets from descriptor 3 on, named in the environment.
        if "HANDED_OVER" not in os.environ:
            one = socket.create_server(("127.0.0.1", 0))
            two = socket.socket(socket.AF_UNIX)
            two.bind(os.environ["SCRATCH"] + "/x.sock")
            two.listen()
            low, high = os.dup2(one.fileno(), 103), os.dup2(two.fileno(), 104)
            os.dup2(low, 3, inheritable=True)
            os.dup2(high, 4, inheritable=True)
            os.environ.update(LISTEN_FDS="2", LISTEN_PID=str(os.getpid()),
                              LISTEN_FDNAMES="beats:local", HANDED_OVER="1")
            with open("/proc/self/cmdline", "rb") as file:
                arguments = file.read().split(b"\\0")[:-1]
            os.execv(sys.executable, arguments)

        def talk():
            result["echo"] = []
            for name in ("beats", "local"):
                listener = make(listen=f"systemd:{name}")
                in_reactor(listener.bind)
                in_reactor(listener.start)
                if name == "beats":
                    client = socket.create_connection(where(listener))
                else:
                    client = socket.socket(socket.AF_UNIX)
                    client.connect(listener.address.removeprefix("unix:"))
                client.sendall(b"hello")
                result["echo"].append(client.recv(99).decode())
        run(talk)
    """)
    assert result["echo"] == ["hello", "hello"]


def test_processes_can_share_a_port(with_reactor: Run) -> None:
    """With reuse_port two listeners have one; both get connections."""
    result = with_reactor("""
        def talk():
            one = make(keywords={"reuse_port": True})
            in_reactor(one.bind)
            port = where(one)[1]
            other = make(listen=f"tcp:127.0.0.1:{port}", keywords={"reuse_port": True})
            in_reactor(other.bind)
            in_reactor(one.start)
            in_reactor(other.start)
            clients = [socket.create_connection(where(one)) for _ in range(64)]
            until(lambda: one.accepted + other.accepted == 64)
            result["both"] = one.accepted > 0 and other.accepted > 0
        run(talk)
    """)
    assert result["both"]


def test_accepted_sockets_are_tuned(with_reactor: Run) -> None:
    """They inherit it from the listening one: no system call per connection."""
    result = with_reactor("""
        def talk():
            listener = make()
            in_reactor(listener.bind)
            in_reactor(listener.start)
            client = socket.create_connection(where(listener))
            until(lambda: Echo.made)
            skt = Echo.made[0].connection._transport.getHandle()
            tcp = socket.IPPROTO_TCP
            result["options"] = [
                skt.getsockopt(tcp, socket.TCP_NODELAY) != 0,
                skt.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0,
                skt.getsockopt(tcp, socket.TCP_KEEPIDLE),
                skt.getsockopt(tcp, socket.TCP_USER_TIMEOUT),
                skt.getsockopt(tcp, socket.TCP_NOTSENT_LOWAT),
            ]
        run(talk)
    """)
    assert result["options"] == [True, True, 60, 60_000, 1 << 17]


def test_the_last_words_arrive_though_we_did_not_read_all(with_reactor: Run) -> None:
    """FIN, not RST: a refused peer reads its reply with megabytes of its own unread."""
    result = with_reactor("""
        from gateway.interfaces import Refusal

        class Refuses(Echo):
            def received(self, data):
                raise Refusal("no", reply=b"sorry")

        def talk():
            listener = make(Refuses)
            in_reactor(listener.bind)
            in_reactor(listener.start)
            client = socket.create_connection(where(listener))
            client.sendall(bytes(8 << 20))
            got = b""
            while piece := client.recv(99):
                got += piece
            result["got"] = got.decode()
            client.close()
            until(lambda: listener.connections == 0)
        run(talk)
    """)
    assert result["got"] == "sorry"


def test_a_reset_with_data_in_flight_is_reported(with_reactor: Run) -> None:
    """Why there is no uvloop here.  Plain and paused, the server hears of the end."""
    result = with_reactor("""
        class Pauses(Echo):
            def received(self, data):
                self.data += data
                self.connection.pause()

        def talk():
            result["gone"] = []
            for accept in (Echo, Pauses):
                Echo.made.clear()
                listener = make(accept, limits={"handshake": 0.2})
                in_reactor(listener.bind)
                in_reactor(listener.start)
                client = socket.create_connection(where(listener))
                client.sendall(bytes(1 << 16))
                until(lambda: Echo.made and Echo.made[0].data)
                client.setblocking(False)
                try:
                    while True:
                        client.send(bytes(1 << 16))
                except BlockingIOError:
                    pass
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.close()
                until(lambda: Echo.made[0].gone and listener.connections == 0)
                result["gone"].append(True)
        run(talk)
    """)
    assert result["gone"] == [True, True]


def test_a_peer_that_never_reads_is_cut_off(with_reactor: Run) -> None:
    """What we hold for it stays bounded; then it is dropped, and another one is not."""
    result = with_reactor("""
        class Push(Echo):
            def __init__(self, connection):
                super().__init__(connection)
                self.push()
            def push(self):
                if not self.gone:
                    self.connection.write(bytes(1 << 16))
                    reactor.callLater(0.02, self.push)

        def talk():
            listener = make(Push)
            in_reactor(listener.bind)
            in_reactor(listener.start)
            reads = socket.create_connection(where(listener))
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            deaf.connect(where(listener))
            until(lambda: listener.connections == 2)
            def read():
                reads.recv(1 << 20)
                return listener.connections == 1
            until(read)
            result["rejected"] = dict(listener.rejected)
            result["still_reads"] = len(reads.recv(1)) == 1
        run(talk)
    """)
    assert result == {"rejected": {"unread": 1}, "still_reads": True}


def test_it_survives_running_out_of_descriptors(with_reactor: Run) -> None:
    """Too many connections are turned away; the port lives, and the disk too."""
    result = with_reactor("""
        import resource, subprocess

        FLOOD = (
            "import socket, sys;"
            "from gateway.net.limits import raise_descriptor_limit as more; more();"
            "where = sys.argv[1], int(sys.argv[2]);"
            "clients = [socket.create_connection(where) for _ in range(400)];"
            "print(flush=True); sys.stdin.read()"
        )

        def talk():
            listener = make()
            in_reactor(listener.bind)
            in_reactor(listener.start)
            flood = subprocess.Popen(
                [sys.executable, "-c", FLOOD, *map(str, where(listener))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            flood.stdout.readline()
            until(lambda: listener.accepted + listener.rejected["descriptors"] >= 400)
            open("/dev/null").close()
            result["held"] = listener.connections
            result["turned_away"] = listener.rejected["descriptors"]
            flood.communicate(b"")
            until(lambda: listener.connections == 0)
            client = socket.create_connection(where(listener))
            client.sendall(b"still alive")
            result["echo"] = client.recv(99).decode()

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        run(talk)
    """)
    assert 100 < result["held"] <= 193
    assert result["turned_away"] >= 200
    assert result["echo"] == "still alive"


def test_a_peer_that_half_closes_gets_its_ack(with_reactor: Run) -> None:
    """`nc -N`: send all, FIN, read what comes."""
    result = with_reactor("""
        class Later(Echo):
            def received(self, data):
                self.connection.busy(True)
                reactor.callLater(0.1, self.store)
            def store(self):
                self.connection.busy(False)
                self.connection.write(b"ack")

        def talk():
            listener = make(Later)
            in_reactor(listener.bind)
            in_reactor(listener.start)
            client = socket.create_connection(where(listener))
            client.sendall(b"window")
            client.shutdown(socket.SHUT_WR)
            got = b""
            while piece := client.recv(99):
                got += piece
            result["got"] = got.decode()
            until(lambda: listener.connections == 0)
        run(talk)
    """)
    assert result["got"] == "ack"


def test_drain_with_real_peers(with_reactor: Run) -> None:
    """Nobody gets in any more; peers see the end; a stubborn one is waited out."""
    result = with_reactor("""
        def talk():
            listener = make()
            in_reactor(listener.bind)
            in_reactor(listener.start)
            polite, stubborn = (socket.create_connection(where(listener))
                                for _ in range(2))
            until(lambda: listener.connections == 2)
            in_reactor(listener.stop)
            def leave():
                polite.recv(9)
                polite.close()
            threading.Thread(target=leave).start()
            in_reactor(listener.drain, 10.0)
            result["left"] = listener.connections
            try:
                socket.create_connection(where(listener))
            except ConnectionRefusedError:
                result["refused"] = True
        run(talk)
    """)
    assert result == {"left": 0, "refused": True}


def test_idle_connections_are_cheap(with_reactor: Run) -> None:
    """Ten thousand of them may cost 25 KiB each; ours of the network are far below."""
    result = with_reactor("""
        import tracemalloc

        class Sink:
            __slots__ = ("connection",)
            def __init__(self, connection):
                self.connection = connection
            def received(self, data): pass
            def closed(self): pass
            def drain(self): pass

        def talk():
            count = raise_descriptor_limit()
            count = min(300, count // 3)
            listener = make(Sink)
            in_reactor(listener.bind)
            in_reactor(listener.start)
            def crowd(size):
                before = listener.accepted
                clients = [socket.create_connection(where(listener))
                           for _ in range(size)]
                for client in clients:
                    client.sendall(b"2W")
                until(lambda: listener.accepted == before + size
                      and listener.bytes == 2 * listener.accepted)
                return clients
            warm = crowd(20)
            tracemalloc.start()
            rest = crowd(count)
            used = sum(each.size for each in tracemalloc.take_snapshot().statistics(
                "filename") if "socket.py" not in each.traceback[0].filename)
            result["bytes"] = used / count
        run(talk)
    """)
    assert result["bytes"] < 8192


def test_a_real_tls_client_is_served_over_a_renewal(
    with_reactor: Run, authority: Any
) -> None:
    """The certificate is swapped on disk: new clients get the new one, no restart."""
    certificate, key = authority.issue("server")
    renewed, renewed_key = authority.issue("renewed")
    result = with_reactor(
        """
        def talk():
            env = os.environ
            tls = SimpleNamespace(certificate=Path(env["CERT"]),
                                  private_key=Path(env["KEY"]), client_auth="none", client_ca=None, allowed_names=[],
                                  minimum_version="TLSv1.2")
            listener = make(tls=tls)
            in_reactor(listener.bind)
            in_reactor(listener.start)
            context = ssl.create_default_context(cafile=env["CA"])
            context.set_alpn_protocols(["h2"])
            def connect():
                return context.wrap_socket(
                    socket.create_connection(where(listener)),
                    server_hostname="127.0.0.1")
            old = connect()
            os.replace(env["NEW_CERT"], env["CERT"])
            os.replace(env["NEW_KEY"], env["KEY"])
            in_reactor(listener.reload)
            new = connect()
            serials = [each.getpeercert()["serialNumber"] for each in (old, new)]
            result["renewed"] = serials[0] != serials[1]
            result["echo"] = []
            for each in (old, new):
                each.sendall(bytes(100_000) + b"!")
                got = b""
                while not got.endswith(b"!"):
                    got += each.recv(1 << 16)
                result["echo"].append(len(got))
                each.close()
            until(lambda: listener.connections == 0)
        run(talk)
        """,
        CERT=str(certificate),
        KEY=str(key),
        NEW_CERT=str(renewed),
        NEW_KEY=str(renewed_key),
        CA=str(authority.file),
    )
    assert result == {"renewed": True, "echo": [100_001, 100_001]}
