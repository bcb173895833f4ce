"""The controller: every call that clients make, and what it knows.

One per daemon, as the container is.  A call is decided at once; its answer is due when
everything that was decided up to then is durable (`last`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.interfaces import IReactorTime

from gateway.interfaces import Refusal
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.credentials import Credentials
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Undecodable, decode
from gateway.protocols.pravega.controller.methods import Caller, Method
from gateway.protocols.pravega.controller.reader_groups import ReaderGroups
from gateway.protocols.pravega.controller.stream_segments import StreamSegments
from gateway.protocols.pravega.controller.streams import Streams
from gateway.protocols.pravega.controller.tokens import DelegationTokens
from gateway.protocols.pravega.controller.transactions import Transactions

__all__ = ["Controller"]

#: Calls by which there is more to remember; what ends and deletes is never refused.
_GROWING = frozenset(
    (
        "createScope", "createStream", "updateStream", "createTransaction",
        "createReaderGroup", "updateReaderGroup", "updateSubscriberStreamCut",
    )
)  # fmt: skip

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"


class Controller:
    """State and calls, whoever carries them."""

    def __init__(
        self,
        container: Container,
        clock: IReactorTime,
        *,
        advertise: Callable[[str], tuple[str, int]],
        users: Mapping[str, str] | None = None,
        tokens: Mapping[str, str] | None = None,
        token_lifetime: float = 600.0,
        segments: int = 100_000,
        table_bytes: int = 64 << 20,
    ) -> None:
        """*advertise* gives host and port of the segment store to who calls us by a
        host.  *users* are names with passwords, *tokens* those with names; if there are
        neither, nobody has to say who they are.  A delegation token is good for
        *token_lifetime* seconds.  At most *segments* in the container, and *table_bytes*
        in its tables, those of the controller included.
        """
        self.container = container
        self._table_bytes = table_bytes
        self.credentials = Credentials(users or {}, tokens or {})
        self.tokens = DelegationTokens(
            clock.seconds,
            lifetime=token_lifetime,
            required=self.credentials.required,
        )
        self._catalog = Catalog(container)
        routes = StreamSegments(
            self._catalog, self.tokens, advertise, self._create_internal
        )
        self._transactions = Transactions(
            self._catalog,
            clock,
            segments=segments,
            grant=routes.grant,
            ranges=routes.ranges,
        )
        self._streams = Streams(self._catalog, self._transactions, segments=segments)
        groups = ReaderGroups(
            self._catalog, self._create_internal, self._streams.delete_internal
        )
        self._methods: Mapping[str, Method] = {
            **routes.methods(),
            **self._streams.methods(),
            **self._transactions.methods(),
            **groups.methods(),
        }

    def start(self) -> None:
        """Once the container has started: its state is this one's."""
        self._catalog.load()
        self.tokens.key = self._catalog.token_key
        self._transactions.start()

    def stop(self) -> None:
        """No timer fires any more."""
        self._transactions.stop()

    @property
    def transactions(self) -> int:
        """How many are open."""
        return self._transactions.open

    @property
    def last(self) -> int:
        """The change that must be durable before anything decided so far is told."""
        return self._catalog.last

    def authenticate(self, authorization: str) -> str:
        """Who calls; raises `Failed`."""
        if not self.credentials.required:
            return ""
        name = self.credentials.name(authorization)
        if name is None:
            raise Failed(Code.UNAUTHENTICATED, "credentials are missing or wrong")
        return name

    def call(self, path: str, message: bytes, caller: Caller) -> bytes:
        """The answer to a call; raises `Failed`."""
        method = self._methods.get(path.removeprefix(_SERVICE))
        if method is None or not path.startswith(_SERVICE):
            raise Failed(Code.UNIMPLEMENTED, f"no method {path!r}")
        kind, answer = method
        try:
            request = decode(kind, message)
        except Undecodable:
            raise Failed(Code.INVALID_ARGUMENT, f"no {kind}") from None
        if path.removeprefix(_SERVICE) in _GROWING:
            self._check_room(len(message))
        answered: bytes = answer(request, caller).SerializeToString()
        return answered

    def _check_room(self, size: int) -> None:
        size += self.container.state.table_bytes
        if size > self._table_bytes:
            why = Refusal(
                f"{size} bytes in tables",
                limit=self._table_bytes,
                key="options.table_bytes",
            )
            raise Failed(Code.RESOURCE_EXHAUSTED, str(why))

    def _create_internal(self, scope: str, name: str) -> None:
        self._streams.create_internal(scope, name)
