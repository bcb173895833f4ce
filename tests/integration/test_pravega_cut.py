"""`gateway pravega cut` at a daemon: where a stream was at a time, and a truncation to there."""

import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemons import free_port, listener
from gateway.protocols.pravega.commands.pravega import text_of
from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller_client import CallFailed, ControllerClient
from gateway.sdk.command import WrongUse

OF_JAVA = "H4sIAAAAAAAA/zOwKs7IL9DPL0pJLSq2MtAxAmJDK0NzHUtLAIe3BR0bAAAA"
"""What version 0.13.0 of its client writes."""


def test_the_text_is_that_of_java():
    """`StreamCut.from` takes it; only the sum's header may differ."""
    import gzip
    from base64 import b64decode

    ours = text_of("shop/orders", {0: 17, (1 << 32) + 2: 99})
    assert gzip.decompress(b64decode(ours)) == gzip.decompress(b64decode(OF_JAVA))


def test_what_is_wrong_is_named():
    """A file of authorities, and a controller that ends between two calls."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(WrongUse, match="--ca /nope: no such file"):
            ControllerClient("127.0.0.1", port, tls=True, ca=Path("/nope"))
        with ControllerClient("127.0.0.1", port) as controller:
            controller._h2.receive_data(b"\0\0\x08\x07" + bytes(13))  # GOAWAY
            with pytest.raises(CallFailed, match=f"127.0.0.1:{port}: "):
                controller.call("getURI", messages.StreamInfo(), messages.NodeUri)


@pytest.mark.slow
def test_a_cut_and_a_truncation(start, gateway_command, tmp_path):
    """Before the events, and behind them; who may not is told, and who types nonsense."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    port = free_port()
    options = {"controller": f"tcp:127.0.0.1:{port}", "users": {"ann": "s3cret"}}
    daemon = start(listeners=[listener("streams", "pravega", options=options)])
    basic = "Basic YW5uOnMzY3JldA=="
    info = messages.StreamInfo(scope="shop", stream="orders")
    with ControllerClient("127.0.0.1", port, authorization=basic) as controller:
        scope = messages.ScopeInfo(scope="shop")
        controller.call("createScope", scope, messages.Status)
        config = messages.StreamConfig(stream_info=info)
        config.scaling.segments = 1
        controller.call("createStream", config, messages.Status)
        token = controller.call("getDelegationToken", info, messages.DelegationToken)
    host, store = daemon.address("streams")
    sent = gateway_command(
        "send", "pravega", f"{host}:{store}", "--generate", 100, "--token", token.token,
        "--segment", "shop/orders/0.#epoch.0",
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    now = datetime.now(UTC)

    def cut(at: datetime, *words: object) -> Any:
        return gateway_command(
            "pravega", "cut", "shop/orders", "--at", at.isoformat(), "--controller",
            f"127.0.0.1:{port}", "--user", f"ann:{secret}", *words,
        )  # fmt: skip

    before = json.loads(cut(now - timedelta(hours=1), "--json").stdout)
    assert before["cut"] == {"0": 0}
    behind = cut(now + timedelta(hours=1), "--json", "--truncate")
    assert behind.returncode == 0, behind.stderr
    end = json.loads(behind.stdout)
    assert end["text"] == text_of("shop/orders", {0: end["cut"]["0"]})
    again = cut(now - timedelta(hours=1))
    assert again.stdout == end["text"] + "\n"
    assert "from" in again.stderr
    nobody = gateway_command(
        "pravega", "cut", "shop/orders", "--at", "2026-01-01", "--controller",
        f"127.0.0.1:{port}",
    )  # fmt: skip
    assert nobody.returncode == 1
    assert "says: " in nobody.stderr
    wrong = gateway_command("pravega", "cut", "orders", "--at", "2026-01-01")
    assert wrong.returncode == 2
