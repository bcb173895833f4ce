"""Options of listeners that take the files of other gateways: `listeners[].options`."""

from __future__ import annotations

import hmac
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from gateway.sdk.endpoint import Unix
from gateway.sdk.fields import Name, Secret
from gateway.sdk.section import AT_ONCE, NEW_CONNECTIONS, Section

if TYPE_CHECKING:
    from gateway.sdk.protocol import Listener


class Options(Section):
    """Options of files that other gateways forward."""

    reload: ClassVar = NEW_CONNECTIONS
    reloads: ClassVar = {"tokens": AT_ONCE, "nodes": AT_ONCE}

    tokens: dict[Name, Secret] = Field(
        default={},
        description="Names to tokens of the gateways that may connect; {} = everyone",
    )
    nodes: dict[Name, list[str]] = Field(
        default={},
        description="Names to patterns of the nodes whose files they may bring, shop-*; "
        "by default a name's own",
    )


def proved(options: Options, name: str, token: str) -> bool:
    """Whether name and token go together, where that is asked for."""
    if not options.tokens:
        return True
    known = options.tokens.get(name)
    secret = b"" if known is None else known.get_secret_value().encode()
    same = hmac.compare_digest(secret, token.encode())
    return known is not None and same


def may_bring(options: Options, who: str, node: str) -> bool:
    """Whether *who*, the name of a token or a certificate's subject, may bring a node's files."""
    name = who.removeprefix("CN=").partition(",")[0]
    return any(fnmatchcase(node, each) for each in options.nodes.get(name, (name,)))


def unproved(listener: Listener[Options]) -> bool:
    """Whether a stranger may bring files."""
    proved = listener.options.tokens or listener.client_certificates
    return not proved and not isinstance(listener.listen, Unix)
