"""The Beats events that `_windows.py` packs: three kinds of documents.

access      a line of an access log and what Filebeat adds by itself: 546 B
ids         identifiers, tokens and free text, which deflate can do little with: 453 B
kubernetes  a line of an access log with what Filebeat adds in a cluster, the metadata of
            host, container and pod: 1.3 KB

No two events are alike, and each `message` begins with the mark of its window.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

__all__ = ["KINDS", "MARK", "MARK_AT", "Shippers"]

#: `message` begins with this, so that a row in the lake tells its window.
MARK = "w{:06d} "
#: Where the six digits of the mark are in the payload of kind `access`.
MARK_AT = len('{"@timestamp":"2026-01-01T00:00:00.000Z","message":"w')

_LINE = (
    '"message":"{mark}{ip} - - [{nginx}] \\"{verb} /{a}/{b}?q={c} HTTP/1.1\\" {status} '
    '{size} \\"https://{d}.example/\\" \\"{agent}\\" {took}"'
)
_ACCESS = (
    '{{"@timestamp":"{stamp}Z",' + _LINE + ',"@metadata":{{"beat":"filebeat",'
    '"type":"_doc","version":"8.13.4"}},"log":{{"offset":{offset},"file":{{"path":'
    '"{path}"}}}},"input":{{"type":"log"}},"ecs":{{"version":"8.0.0"}},"host":{{"name":'
    '"{host}"}},"agent":{{"id":"{id}","type":"filebeat","version":"8.13.4"}}}}'
)
_KUBERNETES = (
    '{{"@timestamp":"{stamp}Z",' + _LINE + ',"@metadata":{{"beat":"filebeat",'
    '"type":"_doc","version":"8.13.4"}},"log":{{"offset":{offset},"file":{{"path":'
    '"/var/log/containers/{pod}_shop_web-{id}.log"}}}},"stream":"stdout","input":{{'
    '"type":"container"}},"ecs":{{"version":"8.0.0"}},"host":{{"name":"{host}",'
    '"architecture":"x86_64","os":{{"platform":"ubuntu","version":"22.04.4 LTS (Jammy '
    'Jellyfish)","family":"debian","kernel":"5.15.0-105-generic"}}}},"agent":{{"id":'
    '"{agent_id}","name":"{host}","type":"filebeat",'
    '"version":"8.13.4"}},"container":{{"id":"{id}","runtime":"containerd","image":{{'
    '"name":"registry.example/shop/web:1.42.0"}}}},"kubernetes":{{"namespace":"shop",'
    '"node":{{"name":"{host}","uid":"{node}"}},"pod":{{"name":"{pod}","uid":"{uid}","ip":'
    '"{pod_ip}"}},"labels":{{"app":"web","pod-template-hash":"{hash}"}},"container":{{'
    '"name":"web"}}}}}}'
)
_IDS = (
    '{{"@timestamp":"{stamp}Z","message":"{mark}{text}","trace":{{"id":"{trace}"}},'
    '"span":{{"id":"{span}"}},"user":{{"id":"{user}"}},"token":"{token}",'
    '"host":{{"name":"{host}"}},"offset":{offset}}}'
)
_AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Safari/604.1",
    "curl/8.5.0",
    "python-requests/2.32.3",
    "kube-probe/1.29",
]
_START = datetime(2026, 1, 1, tzinfo=UTC)
_TOKEN = string.ascii_letters + string.digits + "-_"
_LETTERS = string.ascii_lowercase + "  "


class Shippers:
    """Thirty hosts that ship files; the same *seed* and *first* give the same events."""

    def __init__(self, seed: int, first: int) -> None:
        self._chance = chance = random.Random(seed * 1_000_003 + first)
        self._words = words = [
            "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789-_", k=k))
            for k in range(3, 13)
            for _ in range(400)
        ]
        self._hosts = [f"web-{n:02d}.{words[n]}" for n in range(30)]
        self._ids = [self._hex(128) for _ in self._hosts]
        self._paths = [f"/var/log/nginx/{words[n + 50]}.access.log" for n in range(8)]

    def window(self, kind: str, number: int, events: int) -> list[bytes]:
        """The events of one window, all from one host and one file."""
        chance = self._chance
        which = chance.randrange(len(self._hosts))
        same = {
            "mark": MARK.format(number),
            "host": self._hosts[which],
            "id": self._ids[which],
            "path": chance.choice(self._paths),
        }
        now = _START + timedelta(seconds=number)
        offset = chance.randrange(10**9)
        template, differ = KINDS[kind]
        if template is _KUBERNETES:
            same |= self._pod(which)
        picks = iter(chance.choices(self._words, k=4 * events))
        bodies = []
        for _ in range(events):
            now += timedelta(milliseconds=chance.randrange(3))
            offset += chance.randrange(150, 320)
            stamp = now.isoformat(timespec="milliseconds")[:23]
            own = differ(self, stamp, picks)
            bodies.append(
                template.format(stamp=stamp, offset=offset, **same, **own).encode()
            )
        return bodies

    def _pod(self, which: int) -> dict[str, str]:
        """What the metadata of all events of one container have in common."""
        short = self._ids[which][:10]
        return {
            "id": self._ids[which] + self._ids[which][::-1],
            "pod": f"web-{short}-{self._ids[which][10:15]}",
            "pod_ip": f"10.42.{which}.17",
            "hash": short,
            **{name: self._uuid() for name in ("uid", "node", "agent_id")},
        }

    def _line(self, stamp: str, picks: Iterator[str]) -> dict[str, object]:
        chance = self._chance
        return {
            "ip": ".".join(map(str, chance.getrandbits(32).to_bytes(4, "big"))),
            "nginx": stamp[:19],
            "verb": "POST" if chance.random() < 0.2 else "GET",
            "a": next(picks),
            "b": next(picks),
            "c": next(picks),
            "d": next(picks),
            "status": chance.choice((200, 200, 200, 204, 301, 404, 500)),
            "size": chance.randrange(10**6),
            "agent": chance.choice(_AGENTS),
            "took": f"{chance.random():.3f}",
        }

    def _noise(self, stamp: str, picks: Iterator[str]) -> dict[str, object]:
        chance = self._chance
        return {
            "text": "".join(chance.choices(_LETTERS, k=122)),
            "trace": self._hex(128),
            "span": self._hex(64),
            "user": self._uuid(),
            "token": "".join(chance.choices(_TOKEN, k=76)),
        }

    def _hex(self, bits: int) -> str:
        return f"{self._chance.getrandbits(bits):0{bits // 4}x}"

    def _uuid(self) -> str:
        digits = self._hex(128)
        parts = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]
        return "-".join(parts)


_Differ = Callable[[Shippers, str, Iterator[str]], dict[str, object]]
#: Of each kind: how its events look, and what of them is different each time.
KINDS: dict[str, tuple[str, _Differ]] = {
    "access": (_ACCESS, Shippers._line),
    "ids": (_IDS, Shippers._noise),
    "kubernetes": (_KUBERNETES, Shippers._line),
}
