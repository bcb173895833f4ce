"""Own code on batches: a function of a batch and its context.

    def function(batch: DataFrame, context: Context) -> None

    spark.sink: module:function           the job calls it, with rows as its tables would have them
    consume(spark, config, name, function)    a query of one's own does, with events as the files
                                              have them (`gateway.spark.consumer`)

Either way a batch that did not end comes again under its number, with the same events.  So a
function that writes the rows of a number in one step, over what it has of that number, has
each exactly once.  Code on rows that are in the tables is a query, not a function:
`gateway.spark.beside` runs one in the job's session.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.spark.commit.ledger import Broken
from gateway.store.lsns import Lsns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Names = Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]


@dataclass(frozen=True)
class Context:
    """The facts that a function is told of the batch that it gets."""

    batch: int
    """The batch's number, which never names other rows: of the job 1, 2, … in the tables of
    one data_dir, of a consumer that of its checkpoint."""
    repeated: bool
    """Whether it may have been handed over before; False: certainly for the first time."""
    events: dict[str, list[tuple[int, int]]]
    """The lsns in it, by node, as intervals with both ends."""
    names: Names
    """The same by node and incarnation, empty where that is not known: a machine that was
    rebuilt under its node's name may give lsns again."""
    rows: int
    """How many rows the batch has: all events of these names."""

    @classmethod
    def of(cls, batch: int, names: Names, *, repeated: bool) -> Context:
        """The context of a batch with the events of these names."""
        nodes = {
            node: Lsns.joined(map(Lsns, by.values())) for node, by in names.items()
        }
        events = {node: list(lsns) for node, lsns in nodes.items()}
        rows = sum(Lsns(spans).size for by in names.values() for spans in by.values())
        return cls(batch, repeated, events, names, rows)


Function = Callable[["DataFrame", Context], Any]


def function_of(name: str) -> Function:
    """The function called *name*, `module:function`.

    Raises `Broken` if there is none that takes a batch and a context.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as why:  # a module may raise anything as it is imported
        raise Broken(f"spark.sink: {name}: {type(why).__name__}: {why}") from why
    if not callable(found):
        raise Broken(f"spark.sink: {name} is no function but {type(found).__name__}")
    try:
        inspect.signature(found).bind(None, None)
    except TypeError as why:
        raise Broken(
            f"spark.sink: {name} can not be called with (batch, context): {why}"
        ) from None
    except ValueError:  # one that C made tells nothing of itself
        pass
    return found  # type: ignore[no-any-return]
