"""Published Pomelo clients of npm, and the programs of tests that use them."""

import json
from pathlib import Path

__all__ = ["CLIENTS", "library", "packages", "program_of"]

CLIENTS = {
    "pomelo-jsclient-websocket": "0.1.1",
    "pomelo-nodejsclient-websocket": "0.0.2",
    "pinus-robot-plugin": "1.7.3",
}
_HERE = Path(__file__).parents[1] / "integration"
PARTS = ("pomelo-protocol@0.1.6", "pomelo-protobuf@0.4.0", "ws@8.18.0")


def packages() -> list[str]:
    """What npm is to install."""
    return [*(f"{name}@{version}" for name, version in CLIENTS.items()), *PARTS]


def library() -> str:
    """What loads the clients."""
    return (_HERE / "pomelo_libraries.js").read_text()


def program_of(name: str, authority: Path | None = None) -> str:
    """A program of tests/integration, behind what loads the clients.

    With an *authority*, its certificate, their WebSocket goes over TLS.
    """
    program = library() + (_HERE / f"{name}.js").read_text()
    if authority is None:
        return program
    return f"const authority = {json.dumps(authority.read_text())};\n{program}"
