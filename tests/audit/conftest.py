"""An audit that does not wait before it looks at a moving system again, and a bucket."""

import pytest

from gateway_testkit.bucket import MemoryBucket


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch) -> None:
    monkeypatch.setattr("gateway.audit.proof._PAUSE_SECONDS", 0)


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()
