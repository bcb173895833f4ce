"""The published Pravega client in a process of its own, which does as its parent says.

Its runtime has threads and waits without an end; here it can be killed.
Requests and answers are pickles on standard input and output:

    (object, method, arguments) → (how, value)

Object 0 is the module, -1 what is below, and a positive number is a result that has
no pickle.  *how* is `is`, `kept` (as that object), or `raised`.
"""

import asyncio
import inspect
import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pravega_client

PLAIN = (bool, int, float, str, bytes, bytearray, list, tuple, dict, type(None))


class Whole:
    """What would take too many requests one by one."""

    def write(self, writer: Any, events: list[tuple[bytes, str | None]]) -> None:
        """Each with its routing key."""
        for event, key in events:
            writer.write_event_bytes(event, key)

    def write_flushed(
        self, writer: Any, events: list[tuple[bytes, str | None]]
    ) -> None:
        """The same, and wait until all are acknowledged."""
        self.write(writer, events)
        writer.flush()

    def transact(self, writer: Any, events: list[tuple[bytes, str | None]]) -> str:
        """In one transaction; why it failed, if it did: it may be committed even so."""
        try:
            transaction = writer.begin_txn()
            self.write(transaction, events)
            transaction.commit()
        except Exception as why:
            return str(why)
        return ""

    def tagged(
        self, manager: Any, how: str, scope: str, name: str, tags: list[str]
    ) -> bool:
        """*how* is create or update."""
        method = getattr(manager, f"{how}_stream_with_policy")
        scaling = pravega_client.StreamScalingPolicy.fixed_scaling_policy(1)
        retention = pravega_client.StreamRetentionPolicy.none()
        return bool(method(scope, name, scaling, retention, tags))

    def limited(self, manager: Any, scope: str, name: str, how: str, most: int) -> bool:
        """Make a stream that is kept *by_time*, in milliseconds, or *by_size*."""
        scaling = pravega_client.StreamScalingPolicy.fixed_scaling_policy(1)
        retention = getattr(pravega_client.StreamRetentionPolicy, how)(most)
        create = manager.create_stream_with_policy
        return bool(create(scope, name, scaling, retention, []))

    def resize(self, manager: Any, scope: str, name: str, segments: int) -> bool:
        """Scale a stream to so many segments."""
        scaling = pravega_client.StreamScalingPolicy.fixed_scaling_policy(segments)
        retention = pravega_client.StreamRetentionPolicy.none()
        update = manager.update_stream_with_policy
        return bool(update(scope, name, scaling, retention, []))

    def come_and_go(self, manager: Any, scope: str, times: int) -> int:
        """Make, seal and delete so many streams; how many of it worked."""
        return sum(
            manager.create_stream(scope, f"t{n % 100}", 1)
            and manager.seal_stream(scope, f"t{n % 100}")
            and manager.delete_stream(scope, f"t{n % 100}")
            for n in range(times)
        )

    def slice(self, slice_: Any) -> list[tuple[int, bytes]]:
        """The rest of its events, with their offsets."""
        return [(each.offset(), bytes(each.data())) for each in slice_]

    def head(self, slice_: Any, count: int) -> list[bytes]:
        """The next events of it, and no more."""
        return [bytes(next(slice_).data()) for _ in range(count)]

    async def read(self, reader: Any, count: int) -> list[bytes]:
        """*count* events, at least."""
        found: list[bytes] = []
        while len(found) < count:
            slice_ = await reader.get_segment_slice_async()
            if slice_ is not None:
                found += [bytes(each.data()) for each in slice_]
                reader.release_segment(slice_)
        return found

    def readinto(self, stream: Any, size: int) -> bytes:
        """*size* bytes, in as many reads as it takes."""
        found = b""
        while len(found) < size:
            piece = bytearray(size - len(found))
            found += piece[: stream.readinto(piece)]
        return found


def one(call: tuple[int, str, tuple[Any, ...]], objects: dict[int, Any]) -> Any:
    """What the call gives."""
    number, name, arguments = call
    given = [
        objects[each[1]] if isinstance(each, tuple) and each[:1] == ("kept",) else each
        for each in arguments
    ]
    return getattr(objects[number], name)(*given)


def requests() -> Iterator[Any]:
    while True:
        try:
            yield pickle.load(sys.stdin.buffer)
        except EOFError:
            return


async def main(answers: Any) -> None:
    objects: dict[int, Any] = {0: pravega_client, -1: Whole()}
    for call in requests():
        try:
            value = one(call, objects)
            if inspect.isawaitable(value):
                value = await value
            answer = ("is", value)
            if not isinstance(value, PLAIN):
                objects[number := len(objects)] = value
                answer = ("kept", number)
        except BaseException as why:  # its panics are no Exceptions
            answer = ("raised", f"{type(why).__name__}: {why}")
        pickle.dump(answer, answers)
        answers.flush()


# Whatever else is printed goes where it can be read.
with os.fdopen(os.dup(1), "wb") as pipe:
    os.dup2(2, 1)
    asyncio.run(main(pipe))
    # Its threads would be waited for.
    os._exit(0)
