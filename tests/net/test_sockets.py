"""Connections on real sockets, where memory can not show it: FIN, RST, TLS, memory."""


def test_the_last_words_arrive_though_we_did_not_read_all(with_reactor):
    """FIN, not RST: a refused peer reads its reply with megabytes of its own unread."""
    result = with_reactor("""
        from gateway.sdk.interfaces import Refusal

        class Refuses(Echo):
            def received(self, data):
                raise Refusal("no", reply=b"sorry")

        def talk():
            listener = serve(Refuses)
            client = connect(listener)
            client.sendall(bytes(8 << 20))
            got = b""
            while piece := client.recv(99):
                got += piece
            result["got"] = got.decode()
            client.close()
            until(lambda: listener.connections == 0)
    """)
    assert result["got"] == "sorry"


def test_a_read_is_no_larger_than_its_turn(with_reactor):
    """Of frames at most 32 KiB, in which there may be thousands of them."""
    result = with_reactor("""
        class Sizes(Echo):
            sizes = []
            def received(self, data):
                self.data += data
                self.sizes.append(len(data))

        def talk():
            listener = serve(Sizes, websocket=SimpleNamespace(path="/", origins=[]))
            client = connect(listener)
            client.sendall(
                b"GET / HTTP/1.1\\r\\nHost: gw\\r\\nUpgrade: websocket\\r\\n"
                b"Connection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n"
            )
            client.recv(999)
            size = 4 << 20
            client.sendall(struct.pack("!BBQ4x", 0x82, 0xff, size) + bytes(size))
            until(lambda: Sizes.made and len(Sizes.made[0].data) == size)
            result["most"] = max(Sizes.sizes)
    """)
    assert 0 < result["most"] <= 1 << 15


def test_a_reset_with_data_in_flight_is_reported(with_reactor):
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
                listener = serve(accept, limits={"handshake": 0.2})
                client = connect(listener)
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
    """)
    assert result["gone"] == [True, True]


def test_a_peer_that_half_closes_gets_its_ack(with_reactor):
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
            listener = serve(Later)
            client = connect(listener)
            client.sendall(b"window")
            client.shutdown(socket.SHUT_WR)
            got = b""
            while piece := client.recv(99):
                got += piece
            result["got"] = got.decode()
            until(lambda: listener.connections == 0)
    """)
    assert result["got"] == "ack"


def test_idle_connections_are_cheap(with_reactor):
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
            listener = serve(Sink)
            def crowd(size):
                before = listener.traffic.accepted
                clients = [connect(listener)
                           for _ in range(size)]
                for client in clients:
                    client.sendall(b"2W")
                until(lambda: listener.traffic.accepted == before + size
                      and listener.traffic.bytes == 2 * listener.traffic.accepted)
                return clients
            warm = crowd(20)
            tracemalloc.start()
            rest = crowd(count)
            used = sum(each.size for each in tracemalloc.take_snapshot().statistics(
                "filename") if "socket.py" not in each.traceback[0].filename)
            result["bytes"] = used / count
    """)
    assert result["bytes"] < 8192
