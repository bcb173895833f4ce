"""The doctor looks at certificates as clients would, before they do."""

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path
from stat import ST_UID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.config import Config
from gateway.doctor.certificates import examine
from gateway.doctor.look import Look
from gateway_testkit.certificates import Pair

from .conftest import states, the

Make = Callable[..., Config]
WHAT = "certificate of beats"
YEAR = dt.timedelta(days=365)


@pytest.fixture
def looks(make) -> Callable[..., list[Look]]:
    """At a listener with these files."""

    def looks(pair: Pair, more: str = "", now: dt.datetime | None = None) -> list[Look]:
        tls = f"certificate: {pair.certificate}, private_key: {pair.key}{more}"
        return list(examine(make(f"tls: {{{tls}}}"), now))

    return looks


def test_no_tls(make):
    assert list(examine(make())) == []


def test_a_good_certificate(authority, looks):
    """Its key, how long it is valid, and its names are told."""
    found = looks(authority.issue("gw", dns=["gw.example"], valid=YEAR))
    assert states(iter(found)) == {"ok"}
    assert "gw.example" in the(found, f"{WHAT}, names").detail
    assert "valid until" in the(found, WHAT).detail


def test_the_admin_port(authority, make):
    """Its certificate is looked at, too."""
    pair = authority.issue("gw", dns=["gw.example"], valid=YEAR)
    tls = f"{{certificate: {pair.certificate}, private_key: {pair.key}}}"
    found = list(examine(make(admin=f"{{listen: 'tcp:127.0.0.1:0', tls: {tls}}}")))
    assert "gw.example" in the(found, "certificate of admin, names").detail


def test_the_key_of_another(authority, looks):
    one, two = authority.issue("one"), authority.issue("two")
    look = the(looks(Pair(one.certificate, two.key)), f"{WHAT}, key")
    assert look.state == "fail"
    assert f"{two.key} is not the key of {one.certificate}" in look.detail


@pytest.mark.parametrize(
    ("owner", "mode", "advice"),
    [
        (10001, 0o644, "chmod 600"),
        (10001, 0o640, "chmod 600"),
        (0, 0o640, ""),
        (0, 0o644, "chgrp it to the daemon's group, and chmod 640"),
    ],
)
def test_a_key_that_others_can_read(authority, looks, monkeypatch, owner, mode, advice):
    """One of root's is for the daemon's group: it could not read it with fewer rights."""
    pair, real = authority.issue("gw"), Path.stat

    def stat(path: Path, **more: bool) -> os.stat_result:
        found = [*real(path, **more)]
        found[ST_UID] = owner
        return os.stat_result(found)

    pair.key.chmod(mode)
    monkeypatch.setattr(Path, "stat", stat)
    look = the(looks(pair), f"{WHAT}, key")
    assert (look.state, look.advice) == (
        ("warn", f"{advice} {pair.key}") if advice else ("ok", "")
    )


@pytest.mark.parametrize(
    ("valid", "state", "word"),
    [(-1 / 48, "fail", "expired"), (20, "warn", "19 days"), (31, "ok", "valid until")],
)
def test_how_long_it_is_valid(authority, looks, valid, state, word):
    """Expired; or so soon that somebody should see to it."""
    look = the(looks(authority.issue("gw", valid=dt.timedelta(days=valid))), WHAT)
    assert look.state == state
    assert word in look.detail
    assert ("renew" in look.advice) == (state != "ok")


def test_a_certificate_of_tomorrow(authority, looks):
    """Or a clock of yesterday."""
    now = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    look = the(looks(authority.issue("gw", valid=YEAR), now=now), WHAT)
    assert look.state == "fail"
    assert "clock" in look.advice


@pytest.mark.parametrize(
    ("valid", "state", "word"),
    [(-1 / 48, "fail", "expired"), (5, "warn", "4 days"), (8, "ok", "valid until")],
)
def test_how_long_a_crl_is_valid(authority, looks, valid, state, word):
    """Without a new one clients are refused; and one that is none is told."""
    crl = authority.ca.with_name("crl.pem")
    crl.write_bytes(authority.revoke(valid=dt.timedelta(days=valid)))
    more = f", client_auth: required, client_ca: {authority.ca}, client_crl: {crl}"
    pair = authority.issue("gw", valid=YEAR)
    look = the(looks(pair, more), f"{WHAT}, client_crl")
    assert look.state == state
    assert word in look.detail
    crl.write_bytes(b"")
    assert "no CRL in PEM" in looks(pair, more)[-1].detail


def test_an_intermediate_and_an_authority_that_expire(authority, looks):
    """The authority of these tests is valid for a day."""
    pair = authority.issue("gw", valid=YEAR)
    with pair.certificate.open("ab") as file:
        file.write(authority.ca.read_bytes())
    found = looks(pair, f", client_auth: required, client_ca: {authority.ca}")
    assert the(found, WHAT).state == "ok"
    assert the(found, f"{WHAT}, intermediate 1").state == "warn"
    assert the(found, f"{WHAT}, client_ca").state == "warn"


@pytest.mark.parametrize("which", ["certificate", "key"])
@pytest.mark.parametrize("content", ["", "no PEM", None])
def test_a_file_that_can_not_be_used(authority, looks, which, content, tmp_path):
    """Empty, no PEM, or no file."""
    pair = authority.issue("gw")
    path = getattr(pair, which)
    path.unlink()
    if content is None:
        path.mkdir()
        path = path / "x"
        path.touch()
        pair = pair._replace(**{which: path})
        found = looks(pair)
    else:
        path.write_text(content)
        found = looks(pair)
    look = the(found, WHAT)
    assert look.state == "fail"
    assert str(path) in look.detail
    assert "PEM" in look.advice


def test_a_certificate_without_names(tmp_path, looks):
    """Clients look at alternative names only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gw")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + YEAR)
        .sign(key, hashes.SHA256())
    )
    pair = Pair(tmp_path / "c.pem", tmp_path / "k.pem")
    pair.write(made, key)
    look = the(looks(pair), f"{WHAT}, names")
    assert look.state == "warn"
    assert "alternative names" in look.detail


def test_what_the_hub_is_shown(authority, make):
    """Of who forwards, the certificate, its key, and who signs the hub's."""
    hub = f"to: 'https://hub:7410', ca: {authority.ca}"
    spool = "{after: forward}"
    found = list(examine(make(spool=spool, forward=f"{{{hub}}}")))
    assert [one.what for one in found] == ["certificate of forward, ca"]
    pair = authority.issue("shop", valid=dt.timedelta(minutes=-5))
    ours = f"certificate: {pair.certificate}, private_key: {pair.key}"
    found = list(examine(make(spool=spool, forward=f"{{{hub}, {ours}}}")))
    assert the(found, "certificate of forward").state == "fail"
    assert the(found, "certificate of forward, key").state == "ok"
    pair.certificate.write_text("none")
    found = list(examine(make(spool=spool, forward=f"{{{hub}, {ours}}}")))
    assert the(found, "certificate of forward").state == "fail"
