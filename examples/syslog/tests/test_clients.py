"""Programs that people have: their messages arrive in the gateway's files.

They need the plug-in to be installed: `pip install -e .[test]`.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins import installed
from gateway_testkit.certificates import Authority
from gateway_testkit.daemon import Daemon, listener

pytestmark = pytest.mark.skipif(
    "syslog" not in installed().protocols, reason="gateway-syslog is not installed"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("syslog")


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def daemon(home: Path, authority: Authority) -> Iterator[Daemon]:
    pair = authority.issue("localhost")
    tls = {"certificate": str(pair.certificate), "private_key": str(pair.key)}
    listeners = [
        listener("plain", "syslog"),
        listener("python", "syslog", options={"trailer": "nul"}),
        listener("secure", "syslog", tls=tls),
    ]
    with Daemon(home, {"listeners": listeners}) as daemon:
        yield daemon


@pytest.fixture
def stored(daemon: Daemon) -> Callable[[int], list[dict[str, Any]]]:
    """The events that a test has sent: so many, once they are in the gateway's files."""
    before = daemon.status()["journal"]["durable_lsn"]

    def wait(count: int) -> list[dict[str, Any]]:
        daemon.settled(before + count)
        rows = daemon.rows()[before:]
        assert len(rows) == count
        assert {row["flaw"] for row in rows} == {None}
        return [json.loads(row["payload"]) for row in rows]

    return wait


@pytest.mark.skipif(shutil.which("logger") is None, reason="there is no logger here")
@pytest.mark.parametrize(
    "options",
    [
        ["--rfc5424", "--octet-count"],
        ["--rfc5424"],
        ["--rfc3164", "--octet-count"],
        ["--rfc3164"],
    ],
    ids=" ".join,
)
def test_logger(options: list[str], daemon: Daemon, stored: Any) -> None:
    """util-linux's, in both formats and both framings."""
    host, port = daemon.address("plain")
    tag = ["--tag", "shop", "--priority", "local3.warning"]
    where = ["--tcp", "--server", host, "--port", str(port)]
    subprocess.run(["logger", *where, *options, *tag, "it is late"], check=True)
    [event] = stored(1)
    assert event["message"] == "it is late"
    assert (event["facility"], event["severity"]) == ("local3", "warning")
    assert event["app"] == "shop"
    assert event["host"] == socket.gethostname().partition(".")[0]
    assert event["@timestamp"].startswith("2")


def test_sysloghandler(daemon: Daemon, stored: Any) -> None:
    """Python's, which ends messages with NUL: a traceback is one event."""
    handler = logging.handlers.SysLogHandler(
        daemon.address("python"), socktype=socket.SOCK_STREAM
    )
    log = logging.getLogger("shop")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.info("it is late")
    try:
        raise RuntimeError("out of bread")
    except RuntimeError:
        log.exception("it failed")
    log.removeHandler(handler)
    handler.close()
    late, failed = stored(2)
    assert late == {"facility": "user", "severity": "info", "message": "it is late"}
    assert failed["severity"] == "err"
    assert failed["message"].startswith("it failed\nTraceback")
    assert failed["message"].endswith("RuntimeError: out of bread")


def test_tls(daemon: Daemon, authority: Authority, stored: Any) -> None:
    """RFC 5425: octet counting within TLS."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    with (
        socket.create_connection(daemon.address("secure")) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(b"34 <165>1 - h app - - - it is secret\n")
        [event] = stored(1)
    assert event["message"] == "it is secret"


@pytest.mark.needs_apt
@pytest.mark.skipif(
    shutil.which("rsyslogd") is None, reason="there is no rsyslogd here"
)
@pytest.mark.parametrize("framing", ["octet-counted", "traditional"])
@pytest.mark.parametrize("template", ["TraditionalForward", "SyslogProtocol23"])
def test_rsyslog(
    framing: str, template: str, daemon: Daemon, stored: Any, tmp_path: Path
) -> None:
    """It forwards the lines of a file."""
    host, port = daemon.address("plain")
    source, config = tmp_path / "shop.log", tmp_path / "rsyslog.conf"
    source.write_text("it opens\nit closes\n")
    config.write_text(
        f"""
        global(workDirectory="{tmp_path}")
        module(load="imfile")
        input(type="imfile" File="{source}" Tag="shop:" Severity="notice")
        action(type="omfwd" Protocol="tcp" Target="{host}" Port="{port}"
               TCP_Framing="{framing}" Template="RSYSLOG_{template}Format")
        """
    )
    arguments = ["-n", "-f", str(config), "-i", str(tmp_path / "pid")]
    process = subprocess.Popen(["rsyslogd", *arguments], env={**os.environ})
    try:
        events = stored(2)
    finally:
        process.terminate()
        process.wait()
    assert [event["message"].strip() for event in events] == ["it opens", "it closes"]
    assert {event["app"] for event in events} == {"shop"}
    assert {event["severity"] for event in events} == {"notice"}
    assert {event["host"] for event in events} == {socket.gethostname()}
