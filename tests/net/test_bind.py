"""Ports are opened where the configuration says: TCP, unix, systemd."""

from pathlib import Path


def test_it_listens_and_says_where(with_reactor):
    """Port 0 becomes the real one; who comes before `start` waits and is not lost."""
    result = with_reactor("""
        def talk():
            listener = make()
            in_reactor(listener.bind)
            result["address"] = listener.address
            client = connect(listener)
            client.sendall(b"early")
            time.sleep(0.05)
            result["before"] = [listener.traffic.accepted, len(Echo.made)]
            in_reactor(listener.start)
            result["echo"] = client.recv(99).decode()
            result["after"] = listener.traffic.accepted
    """)
    assert result["address"].startswith("127.0.0.1:")
    assert result["address"] != "127.0.0.1:0"
    assert result["before"] == [0, 0]
    assert result["echo"] == "early"
    assert result["after"] == 1


def test_a_port_that_is_taken_is_an_error_with_its_address(with_reactor):
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
    """)
    taken, foreign, systemd, unix = result["errors"]
    where = f"tcp:127.0.0.1:{result['port']}"
    assert taken == f"listener beats: {where}: Address already in use"
    assert foreign.startswith("listener beats: tcp:192.0.2.1:5044: Cannot assign")
    assert systemd == (
        "listener beats: systemd:nobody: no socket named 'nobody' was handed over"
    )
    assert unix.startswith("listener beats: unix:/proc/nowhere/x: No such file")


def test_of_many_who_come_at_once_some_are_accepted_in_each_turn(with_reactor):
    """However many wait in the kernel, others are served in between."""
    result = with_reactor("""
        def talk():
            one = make()
            in_reactor(one.bind)
            counts = []
            def look():
                counts.append(one.traffic.accepted)
                if counts[-1] < 300:
                    reactor.callLater(0, look)
            def begin():
                waiting.extend(connect(one) for _ in range(300))
                one.start()
                look()
            waiting = []
            in_reactor(begin)
            until(lambda: counts and counts[-1] == 300)
            steps = [after - before for before, after in zip(counts, counts[1:])]
            result["most"], result["all"] = max(steps), counts[-1]
    """)
    assert result["all"] == 300
    assert result["most"] == 32


def test_who_shares_a_port_takes_connections_once_it_has_started(with_reactor):
    """Nobody waits at one that has not, nor finds one that has stopped; a third one must
    share it, too.
    """
    result = with_reactor("""
        from gateway_testkit.daemon import free_port
        def talk():
            listen = f"tcp:127.0.0.1:{free_port()}"
            one, other = (make(listen=listen, reuse_port=True) for _ in range(2))
            in_reactor(one.bind)
            in_reactor(other.bind)
            in_reactor(one.start)
            early = [connect(one) for _ in range(30)]
            until(lambda: one.traffic.accepted == 30)
            in_reactor(other.start)
            while not other.traffic.accepted:
                early.append(connect(one))
                time.sleep(0.01)
            until(lambda: one.traffic.accepted + other.traffic.accepted == len(early))
            in_reactor(one.stop)
            before = other.traffic.accepted
            late = [connect(other) for _ in range(30)]
            until(lambda: other.traffic.accepted == before + 30)
            late[-1].sendall(b"hello")
            result["echo"] = late[-1].recv(99).decode()
            try:
                in_reactor(make(listen=listen).bind)
            except CannotListen as why:
                result["why"] = str(why)
    """)
    assert result["echo"] == "hello"
    assert result["why"].endswith("Address already in use")


def test_an_open_port_is_shared_when_a_reload_says_so(with_reactor):
    """Its socket stays; from then on others may join."""
    result = with_reactor("""
        from gateway_testkit.daemon import free_port
        def talk():
            listen = f"tcp:127.0.0.1:{free_port()}"
            one = make(listen=listen)
            in_reactor(one.bind)
            in_reactor(one.start)
            other = make(listen=listen, reuse_port=True)
            try:
                in_reactor(other.bind)
            except CannotListen as why:
                result["why"] = str(why)
            after = make(listen=listen, reuse_port=True)
            def change():
                after.prepare()
                after.take_over(one)
                after.start()
                other.bind()
                other.start()
            in_reactor(change)
            clients = []
            while not (after.traffic.accepted and other.traffic.accepted):
                clients.append(connect(after))
                time.sleep(0.01)
            result["before"] = one.traffic.accepted
    """)
    assert result["why"].endswith("Address already in use")
    assert result["before"] == 0


def test_a_bad_certificate_is_an_error_with_its_file(with_reactor):
    """At the start, before anybody connects."""
    result = with_reactor("""
        def talk():
            tls = Tls.model_construct(certificate=Path("/no/cert.pem"),
                                      private_key=Path("/no/key.pem"))
            try:
                in_reactor(make(tls=tls).bind)
            except CannotListen as why:
                result["why"] = str(why)
    """)
    assert result["why"].startswith("listener beats: tls: /no/cert.pem: ")


def test_unix_sockets(with_reactor):
    """Mode 660; a dead one is replaced, a live one and a file are not; gone at stop, unless
    somebody has removed it, or put something else there.
    """
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
            listener = serve(listen=f"unix:{path}")
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
            gone = serve(listen=f"unix:{path}")
            os.unlink(path)
            in_reactor(gone.stop)
            replaced = serve(listen=f"unix:{path}")
            os.unlink(path)
            open(path, "w").close()
            in_reactor(replaced.stop)
            result["file"] = fails(make(listen=f"unix:{path}"))
            result["kept"] = os.path.exists(path)
    """)
    assert result["mode"] == "0o660"
    assert result["address"]
    assert result["echo"] == "hello"
    assert result["peer"].startswith("unix:uid=")
    assert result["live"].endswith("somebody listens there already")
    assert not result["left"]
    assert result["file"].endswith("is there already and is no socket")
    assert result["kept"]


def test_systemd_hands_over_a_socket(with_reactor):
    """By its name, of whatever family; its address is reported.  It stays as systemd made
    it, and open when we stop: who comes then waits for the next process.
    """
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
            os.execv(sys.executable, [sys.executable, *sys.argv])

        os.chmod(os.environ["SCRATCH"] + "/x.sock", 0o600)

        def backlog(number):
            # tcp_info's tcpi_sacked, of a socket that listens
            with socket.socket(fileno=os.dup(number)) as it:
                info = it.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            return int.from_bytes(info[28:32], sys.byteorder)

        def talk():
            result["echo"] = []
            for name in ("beats", "local"):
                listener = serve(listen=f"systemd:{name}")
                if name == "beats":
                    client = connect(listener)
                else:
                    client = socket.socket(socket.AF_UNIX)
                    client.connect(listener.address.removeprefix("unix:"))
                client.sendall(b"hello")
                result["echo"].append(client.recv(99).decode())
                in_reactor(listener.stop)
            result["backlog"] = backlog(3)
            path = os.environ["SCRATCH"] + "/x.sock"
            result["mode"] = oct(os.stat(path).st_mode & 0o777)
            for where, family in ((path, socket.AF_UNIX),
                                  (socket.socket(fileno=os.dup(3)).getsockname(), socket.AF_INET)):
                with socket.socket(family) as later:
                    later.connect(where)
    """)
    assert result["echo"] == ["hello", "hello"]
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    assert result["backlog"] == min(most, 4096)
    assert result["mode"] == "0o600"


def test_accepted_sockets_are_tuned(with_reactor):
    """They inherit it from the listening one: no system call per connection."""
    result = with_reactor("""
        def talk():
            listener = serve()
            client = connect(listener)
            until(lambda: Echo.made)
            skt = Echo.made[0].connection.transport.getHandle()
            tcp = socket.IPPROTO_TCP
            result["options"] = [
                skt.getsockopt(tcp, socket.TCP_NODELAY) != 0,
                skt.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0,
                skt.getsockopt(tcp, socket.TCP_KEEPIDLE),
                skt.getsockopt(tcp, socket.TCP_USER_TIMEOUT),
                skt.getsockopt(tcp, socket.TCP_NOTSENT_LOWAT),
            ]
    """)
    assert result["options"] == [True, True, 60, 60_000, 1 << 17]
