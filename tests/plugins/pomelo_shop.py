"""A listener of whose routes one is answered by a service, in memory."""

from typing import Any

from doubles import FakeAgent
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.options import Backend as BackendOptions
from making import Make

OK = b'{"code":200}'
LATE = b'{"code":504,"msg":"no answer"}'


class Shop:
    """A listener whose route `shop.buy` is answered by a service, and `a` is not."""

    def __init__(self, make_reader: Make, more: Any = None, **changes: Any) -> None:
        options = {"routes": ["shop.buy"], "url": "http://shop.test/"} | changes
        backend = BackendOptions.model_validate(options)
        settings = {"backends": [backend], "heartbeat": 0} | (more or {})
        self.reader = make_reader(**settings)
        self.answering = self.reader.listener.services["shop.buy"]
        self.agent = FakeAgent()
        if self.answering._backend is not None:
            self.answering._backend._agent = self.agent
        self.reader.greet(user={"uid": "alice"})
        self.journal, self.clock = self.reader.journal, self.reader.clock

    def buy(self, number: int, body: bytes = b'{"item":1}') -> None:
        """A request is stored."""
        self.reader.deliver(wire.request(number, "shop.buy", body))
        self.journal.store_all()

    def turn(self) -> None:
        """What is due at once."""
        self.clock.advance(0)

    def answer(self, *answers: Any, code: int = 200) -> None:
        """The service answers its oldest post."""
        self.agent.answer(code, {"answers": answers})

    def sent(self) -> bytes:
        """Since the last look."""
        found: bytes = self.reader.sent
        self.reader.connection.clear()
        return found
