"""What clients show and say of TLS; connections are tested where they are used."""

from datetime import timedelta

import pytest
from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet import error, reactor
from twisted.python.failure import Failure

from gateway.sdk.outgoing import end_of, endpoint, why_lost
from gateway_testkit.certificates import Authority


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path)


def test_a_certificate_and_the_key_of_another(authority):
    """As while they are renewed, one after the other: it is said at once, and which files."""
    one, two = authority.issue("one"), authority.issue("two")
    with pytest.raises(
        ValueError, match=f"{one.certificate} with {two.key}: .*not match"
    ):
        endpoint(
            reactor,
            "hub",
            1,
            tls=True,
            certificate=one.certificate,
            private_key=two.key,
        )


def test_a_certificate_that_is_written_just_now(authority):
    """Half of it is none, and no reason to end."""
    pair = authority.issue("one")
    pair.certificate.write_bytes(pair.certificate.read_bytes()[:100])
    with pytest.raises(ValueError, match=str(pair.certificate)):
        endpoint(
            reactor,
            "hub",
            1,
            tls=True,
            certificate=pair.certificate,
            private_key=pair.key,
        )


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
