"""Admission: who may connect, and as whom."""

import base64
import sys
import time
from typing import Any

import jwt
import pytest

from gateway.protocols.pomelo.auth import Denied, Unavailable, admission
from gateway.protocols.pomelo.options import Jwt

_KEY = "a secret that is long enough for HS256"


def _token(key: str = _KEY, **claims: Any) -> str:
    return jwt.encode({"sub": "alice", "exp": time.time() + 60} | claims, key)


def test_nobody_is_asked():
    """Without a rule everyone may come, and the uid is what the client says."""
    admit = admission(None, None)
    assert admit({}).uid is None
    assert admit({"uid": "alice"}).uid == "alice"
    assert admit({"uid": 17}).uid == "17"
    assert admit({"uid": "alice"}).principal is None


@pytest.mark.parametrize("uid", ["", "x" * 256, [], {}, 1.5])
def test_bad_uids(uid):
    """A uid is a short string."""
    with pytest.raises(Denied, match="uid"):
        admission(None, None)({"uid": uid})


def test_shared_token():
    """The token opens; it says nothing about who has it."""
    admit = admission("geheim-ü", None)
    admitted = admit({"token": "geheim-ü", "uid": "bob"})
    assert (admitted.uid, admitted.principal) == ("bob", None)
    for user in ({}, {"token": "geheim"}, {"token": 7}, {"token": ""}):
        with pytest.raises(Denied, match="token"):
            admit(user)


def test_jwt():
    """The claim is the principal and the uid, whatever the client says besides."""
    admit = admission(None, Jwt(key=_KEY))
    admitted = admit({"token": _token(), "uid": "root"})
    assert (admitted.uid, admitted.principal) == ("alice", "alice")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x.y.z",
        _token("another secret that is long enough"),
        _token(exp=time.time() - 60),
        _token(sub=""),
        _token(sub=None),
        jwt.encode({"exp": time.time() + 60}, _KEY),
        jwt.encode({"sub": "alice"}, _KEY),
        jwt.encode({"sub": "alice", "exp": time.time() + 60}, None, algorithm="none"),
        _token(sub="a name that was cut inside an emoji: \ud83d"),
        base64.b64encode(b"[" * 30_000).decode() + ".e30.eA",  # PyJWT 2.10 raises
    ],
    ids=range(11),
)
def test_bad_jwts(token):
    """Forged, expired, unsigned, without an end, without a subject; of no use at all."""
    with pytest.raises(Denied):
        admission(None, Jwt(key=_KEY))({"token": token})


def test_audience_issuer_claim():
    """What the options ask for must be there."""
    rule = Jwt(key=_KEY, audience="game", issuer="login", claim="player")
    admit = admission(None, rule)
    good = {"aud": "game", "iss": "login", "player": 17}
    assert admit({"token": _token(**good)}).principal == "17"
    for wrong in ({"aud": "x"}, {"iss": "x"}, {"player": None}, {"player": True}):
        with pytest.raises(Denied):
            admit({"token": _token(**good | wrong)})


def test_either_will_do():
    """With both rules a client needs to satisfy one."""
    admit = admission("shared", Jwt(key=_KEY))
    assert admit({"token": "shared", "uid": "bot"}).uid == "bot"
    assert admit({"token": _token()}).uid == "alice"
    with pytest.raises(Denied):
        admit({"token": "neither"})


@pytest.mark.parametrize(
    ("algorithms", "why"),
    [
        (["HS265"], "algorithms: 'HS265' is none that PyJWT knows"),
        (["none"], "is no key for none"),
        (["RS256", "ES256"], "is no key for RS256 or ES256"),
    ],
)
def test_signatures_that_none_can_have(algorithms, why):
    """Else everybody would be refused, and nobody who starts the gateway told."""
    with pytest.raises(Unavailable, match=why):
        admission(None, Jwt(key=_KEY, algorithms=algorithms))


def test_without_pyjwt(monkeypatch):
    """Only who asks for JWT needs the library, and is told which."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    assert admission("shared", None)({"token": "shared"})
    with pytest.raises(Unavailable, match="PyJWT"):
        admission(None, Jwt(key=_KEY))
