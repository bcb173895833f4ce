"""Where to listen."""

from pathlib import Path

import pytest

from gateway.sdk.endpoint import Systemd, Tcp, Unix, conflict, parse_endpoint


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("tcp:5044", Tcp("", 5044)),
        ("tcp:0", Tcp("", 0)),
        ("tcp:127.0.0.1:5044", Tcp("127.0.0.1", 5044)),
        ("tcp:gw.example.org:5044", Tcp("gw.example.org", 5044)),
        ("tcp:[::1]:5044", Tcp("::1", 5044)),
        ("unix:/run/gw.sock", Unix(Path("/run/gw.sock"))),
        ("systemd:beats", Systemd("beats")),
    ],
)
def test_every_form_is_read_and_written(text, endpoint):
    """Each form gives its endpoint, whose text is the form again."""
    assert parse_endpoint(text) == endpoint
    assert str(parse_endpoint(text)) == text


def test_a_relative_socket_is_below_the_folder():
    """`unix:gw.sock` lies beside the configuration file, wherever we are started."""
    assert parse_endpoint("unix:gw.sock", Path("/etc/gw")) == Unix(
        Path("/etc/gw/gw.sock")
    )


@pytest.mark.parametrize(
    "text",
    [
        "5044",
        5044,
        None,
        "tcp:",
        "tcp::5044",
        "tcp:65536",
        "tcp:-1",
        "tcp:[]:80",
        "tcp:[127.0.0.1]:80",
        "tcp:::1:80",
        "tcp:999.1.1.1:80",
        "tcp:a b:80",
        "tcp:host:port",
        "udp:80",
        "unix:",
        "unix:/" + "x" * 200,
        "unix:/a\0b",
        "systemd:",
        "systemd:a:b",
    ],
)
def test_anything_else_is_refused(text):
    """What could not be listened on is an error when the file is read."""
    with pytest.raises(ValueError, match=r"must|no host|no such|at most"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("tcp:5044", "tcp:5044", True),
        ("tcp:5044", "tcp:127.0.0.1:5044", True),
        ("tcp:0.0.0.0:5044", "tcp:127.0.0.1:5044", True),
        ("tcp:0.0.0.0:5044", "tcp:[::1]:5044", False),
        ("tcp:5044", "tcp:[::1]:5044", False),
        ("tcp:5044", "tcp:[::]:5044", True),
        ("tcp:[::]:5044", "tcp:[::1]:5044", True),
        ("tcp:[::]:5044", "tcp:0.0.0.0:5044", True),
        ("tcp:127.0.0.1:5044", "tcp:127.0.0.2:5044", False),
        ("tcp:5044", "tcp:5045", False),
        ("tcp:0", "tcp:0", False),
        ("unix:/a", "unix:/a", True),
        ("unix:/a", "unix:/b", False),
        ("systemd:a", "systemd:a", True),
        ("systemd:a", "tcp:1", False),
    ],
)
def test_what_can_not_be_listened_on_twice(one, other, clash):
    """Two endpoints clash if binding the one keeps the other from binding."""
    assert conflict(parse_endpoint(one), parse_endpoint(other)) is clash
    assert conflict(parse_endpoint(other), parse_endpoint(one)) is clash


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("tcp:127.0.0.1:80", True),
        ("tcp:127.8.0.1:80", True),
        ("tcp:[::1]:80", True),
        ("tcp:localhost:80", True),
        ("tcp:80", False),
        ("tcp:0.0.0.0:80", False),
        ("tcp:192.0.2.1:80", False),
        ("tcp:example.org:80", False),
    ],
)
def test_who_can_reach_it(text, local):
    """Only loopback addresses are ours alone."""
    endpoint = parse_endpoint(text)
    assert isinstance(endpoint, Tcp)
    assert endpoint.local is local
