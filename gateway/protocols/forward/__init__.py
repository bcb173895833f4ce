"""Takes the files of other gateways, which forward them: the hub's side, as a plug-in.

`protocol` is the plug-in.  docs/forward.md is what is said, and docs/edge.md what it is good
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.protocols.forward.figures import ARRIVALS
from gateway.sdk.protocol import (
    Context,
    Port,
    Protocol,
    Service,
    Statistics,
    tcp,
)

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from gateway.event import Decode
    from gateway.protocols.forward.options import Options
    from gateway.protocols.forward.server import ForwardListener, ForwardServer
    from gateway.protocols.forward.turns import Turns
    from gateway.sdk.protocol import Configuration, Listener
    from gateway.sdk.section import Section

__all__ = ["protocol"]


class _Forward(Protocol):
    name = "forward"

    def options(self) -> type[Section]:
        from gateway.protocols.forward.options import Options

        return Options

    def starter(self, host: str) -> Mapping[str, Any]:
        return {"name": "edges", "listen": tcp(host, 7410)}

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway.event import Rows

        # It has no batches: what it takes are files.
        return lambda body: Rows([body], content_type="application/octet-stream")

    def describe(self, options: Options) -> Iterator[str]:
        if options.tokens:
            yield f"takes the files of {', '.join(sorted(options.tokens))}"

    def cautions(self, config: Configuration) -> Iterator[str]:
        from gateway.protocols.forward.options import unproved

        ours = [one for one in config.listeners if one.protocol == self.name]
        if ours and config.spark.job is not None:
            yield (
                f"{ours[0].name}: other jobs write the tables of spark.job: "
                f"{config.spark.job}, too; a gateway whose files go to a hub of one and then "
                "to a hub of another is in them twice"
            )
        for listener in ours:
            if unproved(listener):
                yield (
                    f"{listener.name}: without tokens, whoever may connect can bring "
                    "events under any node's name; set options.tokens, or "
                    "tls.client_auth: required"
                )

    def service(self, context: Context) -> Service:
        return _Service(context)


class _Service(Service):
    """The part that all listeners share: where files arrive."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._accepting: set[ForwardListener] = set()
        self._connections: set[ForwardServer] = set()
        self._refused = 0
        self._turns: Turns | None = None

    def ports(self, listener: Listener[Options]) -> Iterator[Port]:
        from gateway.protocols.forward.server import ForwardListener
        from gateway.protocols.forward.turns import Turns
        from gateway.sdk.http1 import METHODS

        context = self._context
        if self._turns is None:
            context.arrivals.open()
            self._turns = Turns(self._in_thread)
        accepting = ForwardListener(
            listener,
            context.arrivals,
            context.reactor,
            self._connections,
            self._count_refused,
            self._turns,
        )
        self._accepting.add(accepting)
        yield Port(accept=accepting, prefixes=METHODS, websocket=False)

    def retired(self, port: Port) -> None:
        """All who came to it are gone."""
        self._accepting = {one for one in self._accepting if one is not port.accept}

    def reload(self) -> None:
        """Tokens are asked for again, of connections that are open, too."""
        options = {one.name: one.options for one in self._context.listeners}
        for each in self._accepting:  # some may have said nothing yet
            each.options = options.get(each.name, each.options)
        for one in tuple(self._connections):
            one.look_again()

    def _in_thread(self, do: Callable[[], Any]) -> Deferred[Any]:
        from twisted.internet.threads import deferToThreadPool

        reactor = self._context.reactor
        return deferToThreadPool(reactor, reactor.getThreadPool(), do)

    def _count_refused(self) -> None:
        self._refused += 1

    def statistics(self) -> Iterator[Statistics]:
        """Files that have come since the start."""
        arrivals = self._context.arrivals
        yield ARRIVALS.of(
            {
                "connections": len({one.by for one in self._connections}),
                "files": arrivals.files,
                "bytes": arrivals.bytes,
                "events": arrivals.events,
                "refused": self._refused,
            },
            troubles=sorted(filter(None, (one.trouble for one in self._connections))),
        )


protocol = _Forward()
