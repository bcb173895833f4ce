"""Files that somebody changes while the gateway runs: certificates, Pomelo's definitions.

They are real files, as OpenSSL reads them by itself.  What is in them is good, or broken
in one of a few ways; one that is broken changes nothing of what is served, and is said.
"""

import functools
import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from simulation.tls import NAMES, authority, pair

__all__ = ["ChangingFiles"]

_ROUTE = "sim.event"


@functools.cache
def _folder() -> tuple[Path, object]:
    """Of this process; the second keeps it until that ends."""
    made = tempfile.TemporaryDirectory(prefix="gateway-simulation-")
    return Path(made.name), made


class ChangingFiles:
    """Of one world, which is the only one at a time."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        folder, _ = _folder()
        self.folder = folder
        """Its name changes from process to process."""
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        self.authority = folder / "authority.pem"
        """Of clients' certificates; nobody changes it."""
        self.authority.write_bytes(authority())
        self.routes = folder / "routes.json"
        self.name: str | None = None
        """Of the certificate in the files; None: they can not be used."""
        self.code: int | None = None
        """Of the route in the definitions; None: likewise."""
        self._writes = 0
        self._tell = tell
        self.mend()

    @property
    def usable(self) -> bool:
        """All of them."""
        return self.name is not None and self.code is not None

    def mend(self) -> None:
        """The operator writes good ones."""
        if self.name is None:
            self._write_certificate(NAMES[0])
        if self.code is None:
            self._write_routes(1)

    def change(self, chance: random.Random) -> None:
        """One of them, in one step of somebody's."""
        chance.choice((self._change_certificate, self._change_routes))(chance)

    def _change_certificate(self, chance: random.Random) -> None:
        name, how = chance.choice(NAMES), chance.choice(("good", "good", *_BROKEN))
        certificate, _ = pair(name)
        if how == "good":
            self._write_certificate(name)
            return
        self._tell(f"certificate: {how}")
        self.name = None
        if how == "of another key":
            self._write(self.certificate, certificate)
            self._write(self.key, pair(NAMES[NAMES.index(name) - 1])[1])
        elif how == "cut":
            self._write(self.certificate, certificate[:100])
        elif how == "missing":
            self.certificate.unlink(missing_ok=True)
        else:
            self._write(self.key, b"")

    def _write_certificate(self, name: str) -> None:
        certificate, key = pair(name)
        self._write(self.certificate, certificate)
        self._write(self.key, key)
        self.name = name
        self._tell(f"certificate: {name}")

    def _change_routes(self, chance: random.Random) -> None:
        how = chance.choice(("good", "good", "cut", "missing", "no code"))
        if how == "good":
            self._write_routes(chance.randint(1, 9))
            return
        self._tell(f"definitions: {how}")
        self.code = None
        if how == "cut":
            self._write(self.routes, b'{"sim.ev')
        elif how == "missing":
            self.routes.unlink(missing_ok=True)
        else:
            self._write(self.routes, b'{"sim.event": 0}')

    def _write_routes(self, code: int) -> None:
        self._write(self.routes, json.dumps({_ROUTE: code}).encode())
        self.code = code
        self._tell(f"definitions: {code}")

    def _write(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        self._writes += 1
        os.utime(path, (1_700_000_000 + self._writes,) * 2)


_BROKEN = ("of another key", "cut", "missing", "without key")
