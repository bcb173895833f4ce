"""What each wire command of version 17 asks for, of the segment that it names.

A command that is not in the table is no command that a client can send: decoding knows
none that is not here, and a test holds that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from gateway.protocols.pravega import wire
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega import wire_tables as wt
from gateway.protocols.pravega.codec import Message


class Need(StrEnum):
    """What is asked for; the text goes into `'ann' may not TEXT 'shop/orders'`."""

    READ = "read"
    WRITE = "write"
    MANAGE = "manage"
    ANY = "see"
    """One of those three, whichever: what there is to know about a stream."""
    USE = "use"
    """One of those, or `groups`: an address, a token, which allow nothing by themselves."""


WIRE: Mapping[type[Message], Need | None] = {
    # They name no segment.
    wire.Hello: None,
    wire.KeepAlive: None,
    # They are parts of a block.
    wire.Padding: None,
    wire.PartialEvent: None,
    wire.Event: None,
    # Each of them is checked with the token and segment of its writer's setup.
    wire.AppendBlock: None,
    wire.AppendBlockEnd: None,
    wire.ConditionalAppend: None,
    wire.ConditionalBlockEnd: None,
    wire.SetupAppend: Need.WRITE,
    ws.CreateTransientSegment: Need.WRITE,
    ws.MergeSegments: Need.WRITE,
    ws.MergeSegmentsBatch: Need.WRITE,
    ws.UpdateSegmentAttribute: Need.WRITE,
    ws.ReadSegment: Need.READ,
    ws.LocateOffset: Need.READ,
    ws.GetStreamSegmentInfo: Need.ANY,
    ws.GetSegmentAttribute: Need.ANY,
    ws.CreateSegment: Need.MANAGE,
    ws.SealSegment: Need.MANAGE,
    ws.DeleteSegment: Need.MANAGE,
    # Of a revisioned stream, whose writers truncate it: WRITE.
    ws.TruncateSegment: Need.MANAGE,
    ws.UpdateSegmentPolicy: Need.MANAGE,
    # They are not served.
    ws.FlushToStorage: Need.MANAGE,
    ws.ListStorageChunks: Need.MANAGE,
    wt.CreateTableSegment: Need.MANAGE,
    wt.DeleteTableSegment: Need.MANAGE,
    wt.UpdateTableEntries: Need.WRITE,
    wt.RemoveTableKeys: Need.WRITE,
    wt.ReadTable: Need.READ,
    wt.ReadTableKeys: Need.READ,
    wt.ReadTableEntries: Need.READ,
    wt.ReadTableEntriesDelta: Need.READ,
    wt.GetTableSegmentInfo: Need.ANY,
}
