"""The controller's protobuf messages, with their fields.

Field numbers and types are those of Pravega 0.15 and earlier versions; the names of
messages are Pravega's.  Names of fields are the gateway's own, as only numbers are sent.
Enums are declared as `Int32`, which is how they are encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.protocols.pravega.controller.protobuf import (
    Double,
    Int32,
    Int64,
    Message,
    Undecodable,
    decode,
    field,
)

__all__ = ["Message", "Undecodable", "decode"]


class ServerRequest(Message):
    pass


class NodeUri(Message):
    host: str = field(1)
    port: Int32 = field(2)


class ServerResponse(Message):
    nodes: Sequence[NodeUri] = field(1)


class ScopeInfo(Message):
    scope: str = field(1)


class StreamInfo(Message):
    scope: str = field(1)
    stream: str = field(2)
    access: Int32 = field(3)


class ContinuationToken(Message):
    token: str = field(1)


class ScalingPolicy(Message):
    kind: Int32 = field(1)
    target_rate: Int32 = field(2)
    scale_factor: Int32 = field(3)
    segments: Int32 = field(4)


class RetentionPolicy(Message):
    kind: Int32 = field(1)
    param: Int64 = field(2)
    max: Int64 = field(3)


class Tags(Message):
    tag: Sequence[str] = field(1)


class StreamConfig(Message):
    stream_info: StreamInfo = field(1)
    scaling: ScalingPolicy = field(2)
    retention: RetentionPolicy = field(3)
    tags: Tags = field(4)
    timestamp_timeout: Int64 = field(5)
    rollover_bytes: Int64 = field(6)


class StreamCut(Message):
    stream_info: StreamInfo = field(1)
    cut: Mapping[Int64, Int64] = field(2)


class StreamCutRange(Message):
    stream_info: StreamInfo = field(1)
    begin: Mapping[Int64, Int64] = field(2)
    end: Mapping[Int64, Int64] = field(3)


class SegmentId(Message):
    stream_info: StreamInfo = field(1)
    number: Int64 = field(2)


class SegmentRange(Message):
    segment: SegmentId = field(1)
    low: Double = field(2)
    high: Double = field(3)


class SegmentRanges(Message):
    ranges: Sequence[SegmentRange] = field(1)
    token: str = field(2)


class GetSegmentsRequest(Message):
    stream_info: StreamInfo = field(1)
    timestamp: Int64 = field(2)


class GetEpochSegmentsRequest(Message):
    stream_info: StreamInfo = field(1)
    epoch: Int32 = field(2)


class SegmentLocation(Message):
    segment: SegmentId = field(1)
    offset: Int64 = field(2)


class SegmentsAtTime(Message):
    segments: Sequence[SegmentLocation] = field(1)
    token: str = field(2)


class SegmentEntry(Message):
    segment: SegmentRange = field(1)
    value: Sequence[Int64] = field(2)


class SuccessorResponse(Message):
    segments: Sequence[SegmentEntry] = field(1)
    token: str = field(2)


class StreamCutRangeResponse(Message):
    segments: Sequence[SegmentId] = field(1)
    token: str = field(2)


class BooleanResponse(Message):
    response: bool = field(1)


class KeyRange(Message):
    low: Double = field(1)
    high: Double = field(2)


class ScaleRequest(Message):
    stream_info: StreamInfo = field(1)
    sealed: Sequence[Int64] = field(2)
    ranges: Sequence[KeyRange] = field(3)
    timestamp: Int64 = field(4)


class ScaleResponse(Message):
    status: Int32 = field(1)
    segments: Sequence[SegmentRange] = field(2)
    epoch: Int32 = field(3)


class ScaleStatusRequest(Message):
    stream_info: StreamInfo = field(1)
    epoch: Int32 = field(2)


class KeyValueTableInfo(Message):
    scope: str = field(1)
    name: str = field(2)


class KeyValueTableConfig(Message):
    scope: str = field(1)
    name: str = field(2)
    partitions: Int32 = field(3)
    primary_bytes: Int32 = field(4)
    secondary_bytes: Int32 = field(5)
    rollover_bytes: Int64 = field(6)


class KeyValueTableConfigResponse(Message):
    config: KeyValueTableConfig = field(1)
    status: Int32 = field(2)


class KeyValueTablesRequest(Message):
    scope: ScopeInfo = field(1)
    continuation: ContinuationToken = field(2)


class KeyValueTablesResponse(Message):
    tables: Sequence[KeyValueTableInfo] = field(1)
    continuation: ContinuationToken = field(2)
    status: Int32 = field(3)


class DelegationToken(Message):
    token: str = field(1)


class Status(Message):
    status: Int32 = field(1)


class StreamsInScopeRequest(Message):
    scope: ScopeInfo = field(1)
    continuation: ContinuationToken = field(2)


class StreamsInScopeWithTagRequest(Message):
    scope: ScopeInfo = field(1)
    tag: str = field(2)
    continuation: ContinuationToken = field(3)


class StreamsInScopeResponse(Message):
    streams: Sequence[StreamInfo] = field(1)
    continuation: ContinuationToken = field(2)
    status: Int32 = field(3)


class ScopesRequest(Message):
    continuation: ContinuationToken = field(1)


class ScopesResponse(Message):
    scopes: Sequence[str] = field(1)
    continuation: ContinuationToken = field(2)


class TxnId(Message):
    high: Int64 = field(1)
    low: Int64 = field(2)


class CreateTxnRequest(Message):
    stream_info: StreamInfo = field(1)
    lease: Int64 = field(2)


class CreateTxnResponse(Message):
    txn: TxnId = field(1)
    ranges: Sequence[SegmentRange] = field(2)
    token: str = field(3)


class TxnRequest(Message):
    stream_info: StreamInfo = field(1)
    txn: TxnId = field(2)
    writer: str = field(3)
    timestamp: Int64 = field(4)


class PingTxnRequest(Message):
    stream_info: StreamInfo = field(1)
    txn: TxnId = field(2)
    lease: Int64 = field(3)


class TxnResponse(Message):
    txn: TxnId = field(1)
    status: Int32 = field(2)


class ListCompletedTxnRequest(Message):
    stream_info: StreamInfo = field(1)


class ListCompletedTxnResponse(Message):
    response: Sequence[TxnResponse] = field(2)


class RemoveWriterRequest(Message):
    writer: str = field(1)
    stream_info: StreamInfo = field(2)


class TimestampFromWriter(Message):
    writer: str = field(1)
    position: StreamCut = field(2)
    timestamp: Int64 = field(3)


class ReaderGroupConfiguration(Message):
    scope: str = field(1)
    name: str = field(2)
    refresh_ms: Int64 = field(3)
    checkpoint_ms: Int64 = field(4)
    checkpoints: Int32 = field(5)
    retention: Int32 = field(6)
    generation: Int64 = field(7)
    id: str = field(8)
    begin: Sequence[StreamCut] = field(9)
    end: Sequence[StreamCut] = field(10)
    rollover_bytes: Int64 = field(11)


class ReaderGroupInfo(Message):
    scope: str = field(1)
    name: str = field(2)
    id: str = field(3)
    generation: Int64 = field(4)


class ReaderGroupConfigResponse(Message):
    config: ReaderGroupConfiguration = field(1)
    status: Int32 = field(2)


class CreateReaderGroupResponse(Message):
    status: Int32 = field(1)
    config: ReaderGroupConfiguration = field(2)


class UpdateReaderGroupResponse(Message):
    status: Int32 = field(1)
    generation: Int64 = field(2)


class SubscriberStreamCut(Message):
    subscriber: str = field(1)
    generation: Int64 = field(2)
    id: str = field(3)
    stream_cut: StreamCut = field(4)


class SubscribersResponse(Message):
    subscribers: Sequence[str] = field(1)
    status: Int32 = field(2)
