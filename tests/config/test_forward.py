"""`forward`, and what must be so beside it."""

import pytest

FORWARDING = "spool: {after: forward}\nforward: {to: 'https://hub:7410'}"


def test_an_address_is_enough(load):
    """All the rest has its defaults, and there is no job."""
    loaded = load(FORWARDING)
    assert loaded.forward is not None
    assert loaded.forward.to == "https://hub:7410"
    assert loaded.forward.name is loaded.forward.token is loaded.forward.rate is None
    assert not loaded.spool.has_job
    assert load("").forward is None
    assert load("").spool.has_job


@pytest.mark.parametrize(
    "to",
    [
        "http://10.0.0.1:7410",
        "https://[2001:db8::1]:7410",
        "http://hub:80",
        "https://hub.example.org/edges",
        "unix:/run/hub.sock",
    ],
)
def test_addresses(load, to):
    """As of any server of HTTP, or a socket of this machine."""
    loaded = load(f"spool: {{after: forward}}\nforward: {{to: '{to}'}}")
    assert loaded.forward is not None
    assert loaded.forward.to == to


def test_several_hubs(load):
    """In order, the first that is preferred; alone it need be no list."""
    loaded = load(
        "spool: {after: forward}\n"
        "forward: {to: ['https://hub:1', 'http://other:2'], next_after: 1m, ca: gateway.yaml}"
    )
    assert loaded.forward is not None
    assert loaded.forward.hubs == ["https://hub:1", "http://other:2"]
    assert loaded.forward.next_after == 60
    alone = load(FORWARDING).forward
    assert alone is not None
    assert alone.hubs == ["https://hub:7410"]
