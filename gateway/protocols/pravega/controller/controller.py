"""The controller: authenticates callers and answers their calls, one per daemon.

A call is carried out at once in memory.  Its answer may be sent when the last change made
until then is durable (`last`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.controller.access import Access, Credentials
from gateway.protocols.pravega.controller.autoscale import Autoscale
from gateway.protocols.pravega.controller.call_permissions import CALLS
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.key_value_tables import KeyValueTables
from gateway.protocols.pravega.controller.messages import Undecodable, decode
from gateway.protocols.pravega.controller.methods import Caller, Method
from gateway.protocols.pravega.controller.reader_groups import ReaderGroups
from gateway.protocols.pravega.controller.retention import Retention
from gateway.protocols.pravega.controller.scaling import Scalings
from gateway.protocols.pravega.controller.stream_segments import StreamSegments
from gateway.protocols.pravega.controller.streams import Streams
from gateway.protocols.pravega.controller.tokens import DelegationTokens
from gateway.protocols.pravega.controller.transactions import Transactions
from gateway.protocols.pravega.controller.watermarks import Watermarks
from gateway.protocols.pravega.options import Options

#: Calls that need room in tables.  Those that end or delete something always have it.
_GROWING = frozenset(
    (
        "createScope", "createStream", "updateStream", "scale", "createTransaction",
        "createReaderGroup", "updateReaderGroup", "updateSubscriberStreamCut",
        "createKeyValueTable",
    )
)  # fmt: skip

_NOT_SERVED = {
    "getControllerToBucketMapping": "the gateway has one controller, without buckets",
}
"""Reasons for not serving methods that clients call."""

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"


class Controller:
    """All methods of the service, by name, and the state they share."""

    def __init__(
        self,
        container: Container,
        options: Options,
        advertise: Callable[[str], tuple[str, int]],
    ) -> None:
        """*advertise* gives host and port of the segment store for the host that was asked."""
        self.container = container
        self.credentials = Credentials(options.users, options.tokens)
        self.access = Access(options.access)
        """The rules in force; without any, all who are let in may do everything."""
        self.tokens = DelegationTokens(
            container.clock.seconds,
            lifetime=options.token_lifetime,
            required=self.credentials.required,
            access=self.access,
        )
        self._catalog = catalog = Catalog(container, options)
        self._watermarks = Watermarks(catalog)
        self.transactions = Transactions(catalog, self.tokens, self._watermarks.noted)
        scalings = Scalings(catalog)
        streams = Streams(catalog, self.transactions, scalings)
        located = StreamSegments(catalog, self.tokens, advertise)
        groups = ReaderGroups(catalog, streams.delete_internal)
        tables = KeyValueTables(catalog, self.tokens)
        self._retention = Retention(catalog, options.stream_retention)
        self._autoscale = Autoscale(catalog, scalings).rounds
        self._methods: Mapping[str, Method] = {
            **StreamSegments.methods.of(located),
            **Scalings.methods.of(scalings),
            **Streams.methods.of(streams),
            **Transactions.methods.of(self.transactions),
            **ReaderGroups.methods.of(groups),
            **KeyValueTables.methods.of(tables),
            **Watermarks.methods.of(self._watermarks),
        }
        self._asked = {name: CALLS[name] for name in self._methods}

    def start(self) -> None:
        """Read the container's tables; the container must have started."""
        self._retention.start()  # before anything is written
        self._catalog.load()
        self.tokens.key = self._catalog.token_key
        self.transactions.start()
        self._autoscale.start()
        self._watermarks.start()

    def stop(self) -> None:
        """Cancel all timers."""
        self.transactions.stop()
        for rounds in (
            self._retention.rounds,
            self._autoscale,
            self._watermarks.rounds,
        ):
            rounds.stop()

    @property
    def last(self) -> int:
        """Number of the change that must be durable before the last answer is sent."""
        return self._catalog.last

    def authenticate(self, authorization: str, principal: str | None = None) -> str:
        """The caller's name; raises `Failed` for missing or wrong credentials.

        Where none are required, it is the *principal* of its certificate; empty without.
        """
        if not self.credentials.required:
            return principal or ""
        name = self.credentials.name(authorization)
        if name is None:
            raise Failed(Code.UNAUTHENTICATED, "credentials are missing or wrong")
        return name

    def call(self, path: str, message: bytes, caller: Caller) -> bytes:
        """The encoded answer to a call; raises `Failed`, `Unfinished`."""
        method = self._methods.get(path.removeprefix(_SERVICE))
        if method is None or not path.startswith(_SERVICE):
            name = path.rpartition("/")[2]
            text = _NOT_SERVED.get(name, f"no method {path!r}")
            raise Failed(Code.UNIMPLEMENTED, text)
        kind, answer = method
        try:
            request = decode(kind, message)
        except Undecodable:
            raise Failed(Code.INVALID_ARGUMENT, f"no {kind.__name__}") from None
        name = path.removeprefix(_SERVICE)
        for need, what in self._asked[name](request):
            denied = self.access.denial(caller.name, need, what)
            if denied is not None:
                raise Failed(Code.PERMISSION_DENIED, str(denied))
        if name in _GROWING:
            self._catalog.check_tables(len(message))
        return answer(request, caller).SerializeToString()
