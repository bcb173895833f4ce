"""Where to listen."""

from datetime import timedelta
from pathlib import Path

import pytest
from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet import error, reactor
from twisted.python.failure import Failure

from gateway.sdk.endpoint import Systemd, Tcp, Unix, conflict, parse_endpoint
from gateway.sdk.outgoing import end_of, endpoint, why_lost
from gateway_testkit.certificates import Authority


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


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("written", [None, 100])
def test_a_certificate_that_is_renewed_just_now(authority, written):
    """It fits its old key no more, or half of it is there: that is said, and of which files."""
    one, two = authority.issue("one"), authority.issue("two")
    one.certificate.write_bytes(one.certificate.read_bytes()[:written])
    files = {"certificate": one.certificate, "private_key": two.key}
    why = f"{one.certificate} with {two.key}: " + ("" if written else ".*not match")
    with pytest.raises(ValueError, match=why):
        endpoint(reactor, "hub", 1, tls=True, **files)


def test_when_a_certificate_ends(authority, tmp_path):
    """The first of the file; of none nothing is known."""
    soon = authority.issue("one", valid=timedelta(hours=1)).certificate
    found = end_of(soon)
    assert found is not None
    soon.write_bytes(
        soon.read_bytes() + authority.issue("two").certificate.read_bytes()
    )
    assert end_of(soon) == found
    soon.write_text("none")
    assert end_of(soon) is None
    assert end_of(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (SSL.Error([("SSL routines", "", "certificate verify failed")]),
         "its certificate is not valid here (certificate verify failed): it has ended, "),
        (SSL.Error([("SSL routines", "", "ssl/tls alert certificate expired")]),
         "it does not go on: ssl/tls alert certificate expired"),
        (SSL.Error([("SSL routines", "", "wrong version number")]), ("no TLS is spoken at "
         "that port, or another version of it (wrong version number)")),
        (SSL.Error([("SSL routines", "", "tls alert handshake failure")]), ("no TLS is spoken"
         " at that port, or another version of it (tls alert handshake failure)")),
        (VerificationError([]), "its certificate is of another name"),
        (error.ConnectionRefusedError(), "Connection was refused by other side."),
    ],
)  # fmt: skip
def test_why_a_connection_is_lost(why, said):
    """In words, of TLS too."""
    assert why_lost(Failure(why)).startswith(said)
