"""The audit of tests does not wait before it looks at a moving system again."""

import pytest


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch) -> None:
    monkeypatch.setattr("gateway.audit.proof._PAUSE_SECONDS", 0)
