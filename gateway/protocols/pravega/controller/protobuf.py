"""Makes protobuf's classes of classes that only declare fields, see `messages`.

So mypy knows the fields and their types, and bytes are read by the library.  Nothing is
generated: the classes are made at import, in a descriptor pool of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

Undecodable = message.DecodeError

Int32: TypeAlias = Annotated[int, "int32"]
Int64: TypeAlias = Annotated[int, "int64"]
Double: TypeAlias = Annotated[float, "double"]

_PACKAGE = "io.pravega.controller.stream.api.grpc.v1"
_POOL = descriptor_pool.DescriptorPool()
_Proto = descriptor_pb2.FieldDescriptorProto
_SCALARS: Mapping[Any, Any] = {
    str: _Proto.TYPE_STRING,
    bool: _Proto.TYPE_BOOL,
    Int32: _Proto.TYPE_INT32,
    Int64: _Proto.TYPE_INT64,
    Double: _Proto.TYPE_DOUBLE,
}


def field(number: int) -> Any:
    """Declares a field of a message; *number* is its own on the wire."""
    return number


@dataclass_transform(kw_only_default=True)
class _Declared(type):
    """Makes one of protobuf's classes of each that declares fields."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], declares: dict[str, Any]
    ) -> Any:
        kind = super().__new__(cls, name, bases, declares)
        return _made(kind) if bases else kind


class Message(metaclass=_Declared):
    """The methods of all messages, as protobuf has them.  Fields that are not given are zero,
    empty or missing.
    """

    if TYPE_CHECKING:

        def SerializeToString(self) -> bytes: ...

        def MergeFromString(self, raw: bytes) -> int:
            """Take what is encoded into this one; raises `Undecodable`."""

        def SetInParent(self) -> None:
            """Be there in the message that has it, though nothing in it is set."""


_Message = TypeVar("_Message", bound=Message)


def decode(kind: type[_Message], raw: bytes) -> _Message:
    """Decode a message; raises `Undecodable`."""
    found = kind()
    found.MergeFromString(raw)
    return found


def _made(kind: type) -> Any:
    """One of protobuf's classes, with the fields that *kind* declares."""
    name = kind.__name__
    file = descriptor_pb2.FileDescriptorProto(
        name=f"gateway/pravega/controller/{name}", package=_PACKAGE, syntax="proto3"
    )
    into = file.message_type.add(name=name)
    for each, hint in get_type_hints(kind, include_extras=True).items():
        number = getattr(kind, each)
        if get_origin(hint) is Mapping:
            entry = into.nested_type.add(name=f"{each.title()}Entry")
            entry.options.map_entry = True
            for place, part in enumerate(("key", "value")):
                _add(file, entry, 1 + place, part, get_args(hint)[place])
            label, of = _Proto.LABEL_REPEATED, _Proto.TYPE_MESSAGE
            more = into.field.add(name=each, number=number, label=label, type=of)
            more.type_name = f".{_PACKAGE}.{name}.{entry.name}"
        elif get_origin(hint) is Sequence:
            _add(file, into, number, each, *get_args(hint), repeated=True)
        else:
            _add(file, into, number, each, hint)
    _POOL.Add(file)
    found = _POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)


def _add(
    file: descriptor_pb2.FileDescriptorProto,
    into: descriptor_pb2.DescriptorProto,
    number: int,
    name: str,
    kind: Any,
    *,
    repeated: bool = False,
) -> None:
    label = _Proto.LABEL_REPEATED if repeated else _Proto.LABEL_OPTIONAL
    field = into.field.add(name=name, number=number, label=label)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    of = kind.DESCRIPTOR
    field.type, field.type_name = _Proto.TYPE_MESSAGE, f".{of.full_name}"
    if of.file.name not in file.dependency:
        file.dependency.append(of.file.name)
