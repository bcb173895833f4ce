"""Options of listeners that take the files of other gateways: `listeners[].options`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from gateway.sdk.endpoint import Unix
from gateway.sdk.fields import Name, Secret
from gateway.sdk.section import NEW_CONNECTIONS, Section
from gateway.sdk.units import Time

if TYPE_CHECKING:
    from gateway.sdk.protocol import Listener


class Options(Section):
    """What is particular to files that other gateways forward."""

    reload: ClassVar = NEW_CONNECTIONS

    tokens: dict[Name, Secret] = Field(
        default={},
        description="Names to tokens of the gateways that may connect; {} = everyone",
    )
    hello_timeout: Annotated[float, Time("100ms", "1h")] = Field(
        default=10.0, description="From the connection to the peer's hello (time)"
    )
    word_interval: Annotated[float, Time("1s", "30s")] = Field(
        default=10.0, description="From one sign of life to the next (time)"
    )


def unproved(listener: Listener[Options]) -> bool:
    """Whether a stranger may bring files."""
    proved = listener.options.tokens or listener.client_certificates
    return not proved and not isinstance(listener.listen, Unix)
