"""The 57 conformance tests by number and name, and the checks that carry them out.

Names follow the Reactive Streams TCK where it has the test.  A test is one or more
checks: of the target as a publisher, as a subscriber, or of the connection itself.  A
test that can only be made from inside an implementation has no check, and says where
ours is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from gateway.protocols.rsio.conformance.probe import Target

__all__ = ["TESTS", "Check", "Role", "Test", "check"]

_MEMORY = "what is held in memory shows on no wire: tests/protocols/rsio/"

Body: TypeAlias = Callable[[Target], None]


class Role(Enum):
    """What a check looks at."""

    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"
    CONNECTION = "connection"


@dataclass(slots=True)
class Check:
    """A function that raises `Failed` if the target does not keep the promise."""

    role: Role
    promise: str
    body: Body
    needs_publishers: bool


@dataclass(slots=True)
class Test:
    """One of the 57 tests."""

    __test__ = False  # pytest would take the class for a test

    number: int
    name: str
    inside: str = ""
    """If it has no checks: why not, and where ours is tested."""
    checks: list[Check] = field(default_factory=list)


_NAMES = {
    1: "required_spec101_neverMoreThanRequested",
    2: "spec102_fewerThenTerminal",
    3: "stochastic_spec103_serial",
    4: "spec104_failureIsOnError",
    5: "spec105_finiteEndIsOnComplete",
    6: "spec107_nothingAfterTerminal",
    7: "spec108_noTerminalNeededAfterCancel",
    8: "spec109_onSubscribeBeforeAllElse",
    9: "spec111_twoSubscribersSameOrder",
    10: "spec201_subscriberSignalsDemand",
    11: "spec203_nothingInReplyToTerminal",
    12: "spec205_secondOnSubscribe",
    13: "spec208_lateOnNextAfterCancel",
    14: "spec209_spec210_terminalWithAndWithoutRequest",
    15: "spec302_spec303_noRecursion",
    16: "spec306_spec307_noOpsAfterCancel",
    17: "spec308_requestsAddUp",
    18: "spec309_notPositive",
    19: "spec312_cancelStopsEventually",
    20: "spec313_referencesDropped",
    21: "spec317_unboundedDemand",
    22: "optionalActivePublisher",
    23: "required_mustRequestFromUpstreamForElementsRequestedLongAgo",
    24: "singleElement_passErrorCancel",
    25: "interleaveThreeStreams",
    26: "emptySingleMultiInfiniteValueThenError",
    27: "flowControl_requestFour",
    28: "cancelThenSilence",
    29: "twoStreamsEndDifferently",
    30: "bidirectionalPairs",
    31: "severalClients",
    32: "disconnectResubscribeNoLoss",
    33: "rejectedSetupEndsStreams",
    34: "keepalive",
    35: "streamLimit",
    36: "messageForLiveId",
    37: "tooLargeElementAndPart",
    38: "leaksAfterRaces",
    39: "helloFirstOnceVersion",
    40: "optimisticSubscribe",
    41: "anySlicing",
    42: "varints",
    43: "unknownTypes",
    44: "badUtf8",
    45: "lengthsRefusedBeforeTheBody",
    46: "fixedSizeAndPacked",
    47: "parts",
    48: "lateTrafficOnCancelledFixedSizeStream",
    49: "idReuse",
    50: "sameIdBothWays",
    51: "goodbye",
    52: "resetMidElement",
    53: "demandIsDurability_acrossKill",
    54: "demandOverrun",
    55: "webSocket",
    56: "statefulModel",
    57: "fuzz",
}

#: Of those without checks: why they have none, and where ours is tested.
_INSIDE = {
    20: _MEMORY + "test_publishing.py::test_references_are_dropped",
    38: _MEMORY + "test_publishing.py::test_nothing_is_left",
    55: "all checks can be run over one; framing: tests/net/test_websocket_frames.py",
    56: "the model of our own state: tests/protocols/rsio/test_model.py",
}

TESTS: dict[int, Test] = {
    number: Test(number, name, _INSIDE.get(number, ""))
    for number, name in _NAMES.items()
}


def check(number: int, role: Role) -> Callable[[Body], Body]:
    """Decorator: a function is a check of test *number*, its docstring the promise."""

    def register(body: Body) -> Body:
        TESTS[number].checks.append(
            Check(
                role=role,
                promise=" ".join((body.__doc__ or "").split()),
                body=body,
                needs_publishers=role is Role.PUBLISHER,
            )
        )
        return body

    return register
