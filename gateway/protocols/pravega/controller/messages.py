"""The controller's protobuf messages, declared as a table of fields.

Field numbers and types are those of Pravega 0.15 and earlier versions.  Names of fields
are the gateway's own, as only numbers are sent.  Enums are declared as `int32`, which is
how they are encoded.  The classes are made at import, in a descriptor pool of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

__all__ = ["MESSAGES", "Message", "Undecodable", "decode", "new"]

Message: TypeAlias = Any
"""An instance of one of `MESSAGES`: attributes are the fields."""

Undecodable = message.DecodeError

_PACKAGE = "io.pravega.controller.stream.api.grpc.v1"

_TABLES = """
ServerRequest:
ServerResponse: 1 *NodeUri nodes
ScopeInfo: 1 string scope
StreamInfo: 1 string scope, 2 string stream, 3 int32 access
ContinuationToken: 1 string token
ScalingPolicy: 1 int32 kind, 2 int32 target_rate, 3 int32 scale_factor, 4 int32 segments
RetentionPolicy: 1 int32 kind, 2 int64 param, 3 int64 max
Tags: 1 *string tag
StreamConfig: 1 StreamInfo stream_info, 2 ScalingPolicy scaling, 3 RetentionPolicy retention, 4 Tags tags, 5 int64 timestamp_timeout, 6 int64 rollover_bytes
StreamCut: 1 StreamInfo stream_info, 2 %int64,int64 cut
StreamCutRange: 1 StreamInfo stream_info, 2 %int64,int64 begin, 3 %int64,int64 end
SegmentId: 1 StreamInfo stream_info, 2 int64 number
SegmentRange: 1 SegmentId segment, 2 double low, 3 double high
SegmentRanges: 1 *SegmentRange ranges, 2 string token
NodeUri: 1 string host, 2 int32 port
GetSegmentsRequest: 1 StreamInfo stream_info, 2 int64 timestamp
GetEpochSegmentsRequest: 1 StreamInfo stream_info, 2 int32 epoch
SegmentLocation: 1 SegmentId segment, 2 int64 offset
SegmentsAtTime: 1 *SegmentLocation segments, 2 string token
SegmentEntry: 1 SegmentRange segment, 2 *int64 value
SuccessorResponse: 1 *SegmentEntry segments, 2 string token
StreamCutRangeResponse: 1 *SegmentId segments, 2 string token
BooleanResponse: 1 bool response
DelegationToken: 1 string token
Status: 1 int32 status
StreamsInScopeRequest: 1 ScopeInfo scope, 2 ContinuationToken continuation
StreamsInScopeWithTagRequest: 1 ScopeInfo scope, 2 string tag, 3 ContinuationToken continuation
StreamsInScopeResponse: 1 *StreamInfo streams, 2 ContinuationToken continuation, 3 int32 status
ScopesRequest: 1 ContinuationToken continuation
ScopesResponse: 1 *string scopes, 2 ContinuationToken continuation
TxnId: 1 int64 high, 2 int64 low
CreateTxnRequest: 1 StreamInfo stream_info, 2 int64 lease
CreateTxnResponse: 1 TxnId txn, 2 *SegmentRange ranges, 3 string token
TxnRequest: 1 StreamInfo stream_info, 2 TxnId txn, 3 string writer, 4 int64 timestamp
PingTxnRequest: 1 StreamInfo stream_info, 2 TxnId txn, 3 int64 lease
TxnResponse: 1 TxnId txn, 2 int32 status
ListCompletedTxnRequest: 1 StreamInfo stream_info
ListCompletedTxnResponse: 1 *TxnResponse response
RemoveWriterRequest: 1 string writer, 2 StreamInfo stream_info
TimestampFromWriter: 1 string writer, 2 StreamCut position, 3 int64 timestamp
ReaderGroupConfiguration: 1 string scope, 2 string name, 3 int64 refresh_ms, 4 int64 checkpoint_ms, 5 int32 checkpoints, 6 int32 retention, 7 int64 generation, 8 string id, 9 *StreamCut begin, 10 *StreamCut end, 11 int64 rollover_bytes
ReaderGroupInfo: 1 string scope, 2 string name, 3 string id, 4 int64 generation
ReaderGroupConfigResponse: 1 ReaderGroupConfiguration config, 2 int32 status
CreateReaderGroupResponse: 1 int32 status, 2 ReaderGroupConfiguration config
UpdateReaderGroupResponse: 1 int32 status, 2 int64 generation
SubscriberStreamCut: 1 string subscriber, 2 int64 generation, 3 string id, 4 StreamCut stream_cut
SubscribersResponse: 1 *string subscribers, 2 int32 status
"""
"""`*` marks a repeated field, `%` a map."""

_FIELD = re.compile(r"(\d+) ([*%]?)([\w,]+) (\w+)(?:, |$)")
_Proto = descriptor_pb2.FieldDescriptorProto


def _declare(
    file: descriptor_pb2.FileDescriptorProto, known: set[str], line: str
) -> None:
    name, _, fields = line.partition(":")
    into = file.message_type.add(name=name)
    for number, sign, kind, field in _FIELD.findall(fields):
        if sign == "%":
            entry = into.nested_type.add(name=f"{field.title()}Entry")
            entry.options.map_entry = True
            for place, (part, each) in enumerate(
                zip(("key", "value"), kind.split(","), strict=True), 1
            ):
                _add(entry, known, str(place), "", each, part)
            _add(into, known, number, "*", f"{name}.{entry.name}", field)
        else:
            _add(into, known, number, sign, kind, field)


def _add(
    into: Any, known: set[str], number: str, sign: str, kind: str, name: str
) -> None:
    label = _Proto.LABEL_REPEATED if sign else _Proto.LABEL_OPTIONAL
    field = into.field.add(name=name, number=int(number), label=label)
    if kind.partition(".")[0] in known:
        field.type = _Proto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = _Proto.Type.Value(f"TYPE_{kind.upper()}")


def _classes() -> Mapping[str, Any]:
    lines = _TABLES.strip().splitlines()
    names = [line.partition(":")[0] for line in lines]
    file = descriptor_pb2.FileDescriptorProto(
        name="gateway/pravega/controller", package=_PACKAGE, syntax="proto3"
    )
    for line in lines:
        _declare(file, set(names), line)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        )
        for name in names
    }


MESSAGES: Mapping[str, Any] = _classes()


def new(name: str, /, **fields: Any) -> Message:
    """Make a message; fields that are not given are zero, empty or missing."""
    return MESSAGES[name](**fields)


def decode(name: str, raw: bytes) -> Message:
    """Decode a message; raises `Undecodable`."""
    found = MESSAGES[name]()
    found.MergeFromString(raw)
    return found
