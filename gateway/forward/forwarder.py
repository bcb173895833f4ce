"""Brings a gateway's files to a hub, by the uploads that a bucket gets, too.

    uploads    which file is next, in threads; pauses; what is refused
    Hub        how it gets there
    Forwarder  which of several hubs has the files; what they lack that the archive still has;
               what incarnations say of themselves; how it goes

A file stays in the spool until the hub has told to have it, then it goes to the archive.  A
hub whose incarnation is new says what it has, and what it lacks goes there again from the
archive.  Nothing else is remembered.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from attrs import define, field
from twisted.logger import Logger

from gateway.config.model import Forward
from gateway.forward.http import Lost, connect
from gateway.forward.hub import Busy, Denied, Hub, Rate
from gateway.sdk.backoff import Backoff
from gateway.sdk.disk import Disk
from gateway.sdk.outgoing import end_of
from gateway.store.directories import Directories
from gateway.store.lsns import Lsns, spelled
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lineage import Lineage
from gateway.store.objects.bucket import BucketError
from gateway.store.objects.node_record import EVERY_SECONDS
from gateway.store.spool.uploads import Held, Put, SetAside, Uploaded, Uploads
from gateway.store.system.threads import RealThreads, Threads

Words = Callable[[Mapping[str, Lsns]], list[tuple[str, str, bytes]]]
"""Makes what is to be said (node, incarnation, word), with what can not be brought anywhere."""

_AT_ONCE = 4
"""Files that are under way together, so that a line is full while answers take their time."""
_LOOK_SECONDS = 1.0
_GREET_SECONDS = 30.0
"""Seconds from one request to the next, where there is nothing to bring."""
_FIND_SECONDS = 10.0
"""Seconds between two looks into the spool for files that were put there by a command."""
_HELD_SECONDS = 600.0
"""A node that was refused is told so long, if it is not tried again."""
_MOST_LEFT = 100
"""Incarnations of which a word has what can not be brought."""
_AGAIN = frozenset((0, 409, 500, 503))


@dataclass(frozen=True, slots=True)
class HubState:
    """How it stands with the hub."""

    to: str
    """The address; all of them, where there are several and none is connected."""
    connected: bool
    """True if the hub was there at the last request."""
    seconds: float
    """Seconds for which that is so, or is not."""
    why: str
    """Why not; or why the hub takes nothing now, empty if it does."""
    refused: int
    """The status of HTTP with which it refuses this gateway; 0: it does not."""
    place: int = 1
    """The place in `forward.to` of the hub that is connected, or tried."""

    @property
    def denied(self) -> bool:
        """Whether it refuses this gateway until an operator does something."""
        return self.refused not in _AGAIN


def tell(
    settings: Forward, node: str, words: Iterable[tuple[str, str, bytes]], disk: Disk
) -> str:
    """Hand on words to the first hub that takes them, as *node*; why none does, or ""."""
    said, rate = [*words], Rate(None, time.monotonic, None)
    why = ""
    for url in settings.hubs:
        hub = Hub(url, settings, node, Path(), disk, connect, rate, lambda _: None)
        try:
            for of, incarnation, word in said:
                hub.say(of, incarnation, word)
        except BucketError as failed:
            why = f"{url}: {failed}"
        else:
            return ""
        finally:
            hub.close()
    return why


@define(eq=False, slots=False)
class Forwarder:
    """The files of one gateway; `start` and `stop`, once each.  Implements `uploads.End`.

    *is_ours* says of a node whether its files in the spool are ours to bring.  *words* makes,
    for a hub that is new, what is said to it again and again.

    43 attributes: 11 are given, the others are shared by the threads of the uploads, which
    bring files, and its own, which looks for hubs.
    """

    name = "forward.certificate"
    """The name of the certificate which the hub is shown, among those of listeners."""
    _log = Logger()

    _settings: Forward
    _node: str
    _lineage: Lineage
    _directories: Directories
    _disk: Disk
    _is_ours: Callable[[str], bool]
    _words: Callable[[], Words] = lambda: lambda _: []
    _connect: Callable[[str, Forward], socket.socket] = connect
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time
    _threads: Threads = field(factory=RealThreads)

    def __attrs_post_init__(self) -> None:
        self._backoff = Backoff()
        self._condition = self._threads.condition()
        self._running = self._connected = False
        self._at = 0
        """The hub that has the files, or is tried."""
        self._since = self._clock()
        self._try_at = self._greeted_at = self._asked_at = 0.0
        self._worded_at = self._found_at = self._looked_at = float("-inf")
        self._why, self._told, self._word = "not connected yet", "", ""
        self._denied = 0
        self._held: dict[str, tuple[float, Held]] = {}
        """Nodes that were refused, and until when that is told."""
        self._archived: dict[str, list[str]] = {}
        """Names that the archive had when the hub was new, of nodes it was not asked about."""
        self._again: set[str] = set()
        """Files that go there from the archive."""
        self._say: Words = lambda _: []
        self._unsaid: dict[tuple[str, str], bytes] = {}
        """Words that this hub is to hear, by node and incarnation, and could not keep yet."""
        self._hub = self._new_hub(0)
        directories = self._directories
        self.uploads = Uploads(
            self,
            self._node,
            directories.spool,
            directories.archive,
            self._disk,
            _AT_ONCE,
            self._arrived,
            self._is_ours,
            lambda node: node != self._node,
            clock=self._clock,
            threads=self._threads,
            quiet=True,
        )
        self.made_lsn = 0
        """There are files of ours up to this lsn, or holes: the spool raises it."""
        self.node = ""
        """The name of the hub that was connected last."""
        self.sent_files = self.sent_bytes = self.sent_events = 0
        """Files, and their bytes and events, that the hub has told to have since the start."""
        self.connections = self.set_aside = 0
        """Times that the hub was reached; files that could not be read."""
        self.certificate_ends: datetime | None = None
        """When the certificate ends that the hub is shown; None: there is none, or none was
        read."""
        self.left: Mapping[str, Lsns] = {}
        """Lsns in the spool that can not be brought anywhere, by `NODE_INCARNATION`."""

    def _new_hub(self, at: int) -> Hub:
        settings = self._settings
        return Hub(
            settings.hubs[at],
            settings,
            self._node,
            self._directories.root / "poison",
            self._disk,
            self._connect,
            Rate(settings.rate, self._clock, self._threads.condition()),
            self._has,
            self._wall_clock,
        )

    # The daemon

    def start(self, published_lsn: int) -> None:
        """Go on until `stop`; there are files up to that lsn."""
        self._running, self.made_lsn = True, published_lsn
        self._since = self._clock()
        self.uploads.find()
        self.uploads.start(lambda: None)
        self._threads.thread("forward", self._run).start()

    def stop(self) -> None:
        """Hang up; what is not told to be there is sent again by the next start."""
        self._running = False
        self._hub.close()
        self.uploads.finish(0)
        with self._condition:
            self._condition.notify()

    def configure(self, settings: Forward) -> None:
        """Go on with these, on a new connection if they are others."""
        if settings == self._settings:
            return
        self._settings, self._denied = settings, 0
        self._backoff.succeeded()
        self._turn_to_hub(0, "the configuration is another one")

    # What it tells

    @property
    def hub(self) -> HubState:
        """How it stands."""
        now, hubs = self._clock(), self._settings.hubs
        why = (self._word or self.uploads.problem) if self._connected else self._why
        refused = self._denied
        if not refused:
            told = (one for until, one in [*self._held.values()] if until > now)
            if (held := next(told, None)) is not None:
                why, refused = why or str(held), held.code
        to = hubs[self._at] if self._connected else " or ".join(hubs)
        seconds = now - self._since
        place = self._at + 1
        return HubState(to, self._connected, seconds, why or "", refused, place)

    @property
    def why_waiting(self) -> str:
        """The reason why files wait in the spool."""
        hub = self.hub
        if not hub.connected:
            return f"the hub, {hub.to}, is away: {hub.why}"
        return f"the hub, {hub.to}, is behind" + (f": {hub.why}" if hub.why else "")

    @property
    def files(self) -> int:
        """Files that wait at the hub for the reader of its spool, as it said last."""
        return self._hub.waiting

    @property
    def arrived_lsn(self) -> int:
        """The hub has all of our node's up to there, as far as that is known."""
        last = self.uploads.last.get(self._node, 0)
        return self.uploads.safe_lsn(max(self.made_lsn, last))

    @property
    def nodes(self) -> dict[str, int]:
        """The last lsn up to which the hub has all, of others whose files go over from here."""
        safe, last = self.uploads.safe_lsn, {**self.uploads.last}
        last.pop(self._node, None)
        return {node: safe(lsn, node) for node, lsn in last.items()}

    # The thread

    def _run(self) -> None:
        while self._running:
            try:
                self._look()
            except Exception:
                self._log.failure("Forwarding")
            with self._condition:
                if self._running:
                    pause = self._try_at - self._clock()
                    short = not self._connected and pause < _LOOK_SECONDS
                    self._condition.wait(max(pause, 0.01) if short else _LOOK_SECONDS)

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at >= _FIND_SECONDS:
            self._looked_at, own = now, self._settings.certificate
            self.certificate_ends = None if own is None else end_of(own)
        hub = self._hub
        try:
            if not self._connected:
                if now >= self._try_at:
                    self._reach(hub)
                return
            if now - self._found_at >= _FIND_SECONDS:
                self._found_at = now
                self.uploads.find()
            if not hub.is_open or now - self._greeted_at >= _GREET_SECONDS:
                self._greet(hub)
            if now - self._worded_at >= EVERY_SECONDS:
                self._tell_words(hub)
            self._ask_about_archived(hub)
            if self._at and now - self._asked_at >= self._settings.next_after:
                self._ask_those_before()
        except OSError as why:
            if hub is self._hub:
                self._failed(hub, why)

    def _reach(self, hub: Hub) -> None:
        self._greet(hub)
        self._say, self._unsaid = self._words(), {}
        self._tell_words(hub)
        if hub is not self._hub:
            return
        self._connected, self._since = True, self._clock()
        self._asked_at, self._denied, self._word, self._told = self._since, 0, "", ""
        self.connections += 1
        self._log.info("Forwarding to {to}", to=hub.url)
        self.uploads.go_on()

    def _greet(self, hub: Hub) -> None:
        """Ask for its incarnation; where that is new, what it lacks goes there again."""
        if (known := hub.greet()) is not None:
            # Before the archive, as a file may go there now.
            self.uploads.find()
            # They may be millions: a region has them listed once for all its edges, and keeps
            # nothing but names.  Those that get there meanwhile come by `_arrived`.
            self._archived, archived = {}, dict[str, list[str]]()
            for name in self._disk.names(self._directories.archive):
                if (file := parse_file_name(name)) is not None:
                    archived.setdefault(file.node, []).append(name)
            for node in filter(self._is_ours, archived):
                self._archived[node] = [*self._archived.get(node, ()), *archived[node]]
            self._has(self._node)
            # Only now, or what failed on the way would not be done again.
            hub.incarnation, self.node = known.incarnation, known.hub
        self._greeted_at = self._clock()

    def _has(self, node: str) -> None:
        """The hub has told what it has of a node."""
        lsns = self._hub.lsns_of(node) or {}
        here = {by: one.copy() for by, one in lsns.items()}
        for name in self._archived.pop(node, []):
            file = parse_file_name(name)
            assert file is not None
            here.setdefault(file.incarnation, Lsns()).add(file.first, file.last)
            if not self._hub.has(file):
                self._again.add(name)
                self.uploads.add(name)
        last = max((one.last for one in lsns.values()), default=0)
        known = self.uploads.last
        if node == self._node:
            self._tell_holes(here)
        else:
            known[node] = max(last, known.get(node, 0))

    def _tell_holes(self, here: dict[str, Lsns]) -> None:
        """Tell which lsns of ours the hub lacks, and of which there is no file here."""
        for file in self.uploads.waiting_of(self._node):
            here.setdefault(file.incarnation, Lsns()).add(file.first, file.last)
        now: Incarnation = self._lineage.now
        began = {**now.began, now.id: now.since}
        for by, lsns in here.items():
            since = began.get(by) or next(iter(lsns), (1, 0))[0]
            told = self._lineage.holes.get(by, Lsns())
            for first, last in Lsns([(since, lsns.last)]) - lsns - told:
                self._log.warn(
                    "The hub lacks {lsns} of incarnation {by}, of which "
                    "there are no files here any more (spool.retention)",
                    lsns=spelled(first, last),
                    by=by,
                )

    def _ask_about_archived(self, hub: Hub) -> None:
        """Ask about one node of others that has brought nothing since the hub was new."""
        for node in [*self._archived]:
            if hub.lsns_of(node) is not None:
                self._has(node)
            elif not self._is_held(node):
                try:
                    hub.ask_about(node)
                except Held as why:
                    self._hold(node, why)
                except Busy:  # maybe for this one alone
                    self._archived[node] = self._archived.pop(node, [])
                return

    def _tell_words(self, hub: Hub) -> None:
        self._worded_at = self._clock()
        self.left = self._left_here()
        said = self._say(self.left)
        for node, by, word in said:  # in their order: others' words first
            self._unsaid.pop((node, by), None)
            self._unsaid[node, by] = word
        for whose, word in [*self._unsaid.items()]:
            # Others' may be refused, and one that fails holds up nothing else.
            with contextlib.suppress(Busy):
                with contextlib.suppress(Held):
                    hub.say(*whose, word)
                del self._unsaid[whose]

    def _left_here(self) -> dict[str, Lsns]:
        """Lsns in the spool of nodes whose files are not ours to bring, or which the hub does
        not take from us, by `NODE_INCARNATION`.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        known: dict[str, bool] = {}
        for name in self._disk.names(self._directories.spool):
            if (file := parse_file_name(name)) is None:
                continue
            node, life = file.node, str(file.life)
            if node not in known:
                known[node] = self._is_held(node) or not self._is_ours(node)
            if known[node] and (life in found or len(found) < _MOST_LEFT):
                found.setdefault(life, []).append((file.first, file.last))
        return {life: Lsns(spans) for life, spans in found.items()}

    # Several hubs

    def _turn_to_hub(self, at: int, why: str) -> None:
        """Bring files to that one, and to no other."""
        before, self._at, self._hub = self._hub, at, self._new_hub(at)
        self._archived, self._try_at = {}, 0.0
        self._held.clear()
        self._is_away(why)
        before.close()
        with self._condition:
            self._condition.notify()

    def _ask_those_before(self) -> None:
        """Ask the hubs that come first whether they are back."""
        self._asked_at = self._clock()
        for at in range(self._at):
            hub = self._new_hub(at)
            with contextlib.suppress(BucketError), contextlib.closing(hub):
                hub.greet()
                self._turn_to_hub(at, f"{hub.url} is back")
                return

    def _failed(self, hub: Hub, why: OSError) -> None:
        """A request had no answer, or one that refuses this gateway; or the disk fails.  Any
        thread.
        """
        if isinstance(why, Busy):
            self._word = str(why)
            if self._connected:
                return
        self._denied = why.code if isinstance(why, Denied) else 0
        self._is_away(str(why))
        if self._why != self._told:
            self._told = self._why
            self._log.warn("Not forwarding to {to}: {why}", to=hub.url, why=self._why)
        self._try_at = self._clock() + self._backoff.pause()
        waited = self._clock() - self._since
        if waited >= self._settings.next_after and len(self._settings.hubs) > 1:
            self._turn_to_hub((self._at + 1) % len(self._settings.hubs), self._why)
        with self._condition:
            self._condition.notify()

    def _is_away(self, why: str) -> None:
        if self._connected:
            self._since = self._clock()
        self._connected, self._why, self._word = False, why, ""

    # What uploads ask for

    @property
    def url(self) -> str:
        return " or ".join(self._settings.hubs)

    def prepare(self) -> None:
        if not self._connected:
            raise Lost(self._why)

    def put(self, file: SpoolFile, path: Path) -> Put:
        self.prepare()
        hub = self._hub
        try:
            found = hub.put(file, path)
        except SetAside:
            self.set_aside += 1
            raise
        except Held as why:
            self._hold(file.node, why)
            raise
        except (Lost, Denied, Busy) as why:
            if self._connected and hub is self._hub:  # else another thread has told
                self._failed(hub, why)
            raise
        if hub is not self._hub:
            raise Lost("another hub is to have it")
        self._word = ""
        return found

    def size(self, file: SpoolFile) -> int | None:
        return 0 if file.name in self._again or self._hub.has(file) else None

    def _arrived(self, one: Uploaded) -> None:
        """A file is in the archive."""
        file = parse_file_name(one.name)
        assert file is not None
        self._again.discard(one.name)
        if not self._hub.has(file):  # another one was here meanwhile
            if self._disk.exists(self._directories.archive / one.name):
                self._archived.setdefault(file.node, []).append(one.name)
                if self._hub.lsns_of(file.node) is not None:
                    self._has(file.node)
            return
        self._held.pop(file.node, None)
        if not one.again:
            self._backoff.succeeded()
            self.sent_files += 1
            self.sent_bytes += one.bytes
            self.sent_events += file.events

    def _hold(self, node: str, why: Held) -> None:
        self._held[node] = self._clock() + _HELD_SECONDS, why

    def _is_held(self, node: str) -> bool:
        until, _ = self._held.get(node, (0.0, None))
        # Tried again after a tenth of what it is told for.
        return self._clock() < until - 0.9 * _HELD_SECONDS
