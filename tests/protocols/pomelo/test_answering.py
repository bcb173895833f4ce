"""Answers from a game's own service: put to it once durable, each request answered once."""

import base64
import zlib
from collections import Counter

import pytest
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.web.client import ResponseNeverReceived

from gateway.event import Origin
from gateway.protocols.pomelo import wire
from gateway.testing import FakeConnection
from pomelo_shop import LATE, OK, Shop

from .conftest import zipped


@pytest.fixture
def shop(make_reader) -> Shop:
    """With the defaults."""
    return Shop(make_reader)


def test_a_request_is_durable_before_the_service_sees_it(shop):
    """Then it is put to it, with who asks and where it is stored; its answer goes out."""
    shop.reader.deliver(
        wire.notify("x", b"{}") + wire.request(7, "shop.buy", b'{"item": 1.50}')
    )
    shop.turn()
    assert shop.agent.asked == []
    shop.journal.store_all()
    shop.turn()
    [asked] = shop.agent.asked
    assert asked == {
        "requests": [
            {
                "route": "shop.buy",
                "id": 7,
                "session": shop.reader.connection.origin.session,
                "uid": "alice",
                "principal": None,
                "lsn": 2,
                "body": {"item": 1.5},
            }
        ]
    }
    assert shop.sent() == b""
    assert shop.reader.connection.waiting
    shop.answer({"price": 3, "name": "é"})
    assert shop.sent() == wire.response(7, b'{"price": 3, "name": "\\u00e9"}')
    assert not shop.reader.connection.waiting
    assert shop.reader.server.unacknowledged_bytes == shop.journal.reserved == 0
    assert shop.answering.outcomes["answered"] == 1


def test_others_are_answered_as_ever(shop):
    """In the same batch, at once; a notify on the route is only stored."""
    shop.reader.deliver(
        wire.request(1, "a", b"{}")
        + wire.request(2, "shop.buy", b"{}")
        + wire.request(3, "a", b"{}")
        + wire.notify("shop.buy", b"{}")
    )
    shop.journal.store_all()
    assert shop.sent() == wire.response(1, OK) + wire.response(3, OK)
    shop.turn()
    assert [one["id"] for one in shop.agent.asked[0]["requests"]] == [2]


def test_what_waits_goes_together(make_reader):
    """A batch in a post, so many posts at once; answers may overtake each other."""
    shop = Shop(make_reader, batch=3, requests=2)
    for number in range(1, 9):
        shop.buy(number)
    for _ in range(3):
        shop.turn()
    asked = [[one["id"] for one in post["requests"]] for post in shop.agent.asked]
    assert asked == [[1, 2, 3], [4, 5, 6]]
    shop.answer(1, 2, 3)
    shop.turn()
    shop.answer(4, 5, 6)
    shop.answer(7, 8)
    found = b"".join(wire.response(n, b"%d" % n) for n in range(1, 9))
    assert shop.sent() == found


def test_time_is_over(shop):
    """The client hears so, once; an answer that comes later goes nowhere."""
    shop.buy(1)
    shop.turn()
    shop.clock.advance(3)
    shop.buy(2)
    shop.turn()
    shop.clock.advance(2)
    assert shop.sent() == wire.response(1, LATE)
    shop.answer("fine")
    assert shop.sent() == wire.response(2, b'"fine"')
    assert shop.answering.outcomes == {
        "answered": 1, "late": 1, "failed": 0, "refused": 0
    }  # fmt: skip
    assert shop.answering.waiting == 0


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (500, b""),
        (200, b"{"),
        (200, b'{"answers":[]}'),
        (200, b'{"answers":[1,2]}'),
        (200, b'{"answers":{}}'),
    ],
)
def test_an_answer_of_no_use(shop, code, said):
    """… is none."""
    shop.buy(1)
    shop.turn()
    shop.agent.answer(code, said)
    assert shop.sent() == wire.response(1, LATE)
    assert shop.answering.outcomes["failed"] == 1


def test_a_service_that_is_away(shop):
    """Requests are stored, and answered as the configuration says."""
    shop.buy(1)
    shop.turn()
    shop.agent.fail(Refused())
    assert shop.sent() == wire.response(1, LATE)
    assert len(shop.journal.stored) == 1
    told = str(shop.answering.trouble)
    assert told.startswith("http://shop.test/ does not answer: ")


@pytest.mark.parametrize("repeat", [False, True])
def test_what_may_be_asked_twice(make_reader, repeat):
    """Only if the configuration says so is it."""
    shop = Shop(make_reader, repeat=repeat)
    shop.buy(1)
    shop.turn()
    shop.agent.fail(ResponseNeverReceived([]))
    assert len(shop.agent.asked) == (2 if repeat else 1)
    assert shop.sent() == (b"" if repeat else wire.response(1, LATE))


def test_too_many_wait(make_reader):
    """A service that is slow holds back its own route, and nothing else."""
    shop = Shop(make_reader, waiting=2, late={"code": 503})
    for number in (1, 2, 3):
        shop.buy(number)
    shop.reader.deliver(wire.request(9, "a", b"{}"))
    shop.journal.store_all()
    assert shop.sent() == wire.response(3, b'{"code":503}') + wire.response(9, OK)
    assert shop.answering.outcomes["refused"] == 1


def test_a_client_that_leaves(shop):
    """Nothing is kept for it; others are answered."""
    shop.buy(1)
    shop.turn()
    shop.buy(2)
    shop.reader.connection.lose()
    assert shop.answering.waiting == 0
    assert shop.journal.reserved == 0
    shop.turn()
    shop.answer("late")
    assert shop.answering.outcomes["answered"] == 0
    other, _ = shop.reader.connect()
    other.deliver(wire.package(1, b'{"sys":{}}') + wire.package(wire.ACK))
    other.clear()
    other.deliver(wire.request(1, "shop.buy", b"{}"))
    shop.journal.store_all()
    shop.turn()
    shop.answer("hello")
    assert other.sent == wire.response(1, b'"hello"')


def test_a_client_that_leaves_before_it_is_stored(shop):
    """Its request is forgotten; the service never hears of it."""
    shop.reader.deliver(wire.request(1, "shop.buy", b"{}"))
    shop.reader.connection.lose()
    shop.journal.store_all()
    shop.turn()
    assert shop.agent.asked == []
    assert shop.journal.reserved == 0


def test_a_request_that_can_not_be_stored(shop):
    """It is answered 500, and not put to the service."""
    shop.reader.deliver(wire.request(1, "shop.buy", b"{}"))
    shop.journal.refuse()
    shop.turn()
    assert shop.sent() == wire.response(1, b'{"code":500,"msg":"not stored"}')
    assert shop.agent.asked == []
    assert shop.journal.reserved == 0


def test_a_stop(make_reader):
    """What is asked is waited for, but not beyond the drain."""
    shop = Shop(make_reader, timeout="5m")
    shop.buy(1)
    shop.buy(2)
    shop.turn()
    shop.reader.connection.drain()
    assert not shop.reader.connection.closed
    shop.clock.advance(6.9)
    assert shop.sent() == b""
    shop.clock.advance(0.2)
    kick = wire.kick("shutdown")
    assert shop.sent() == wire.response(1, LATE) + wire.response(2, LATE) + kick
    assert shop.reader.connection.closed
    ticks = shop.clock.getDelayedCalls()
    shop.buy(3)
    shop.answering.close()
    assert shop.clock.getDelayedCalls() == ticks


def test_a_kick_waits_for_answers(shop):
    """They are sent first, as responses are."""
    shop.buy(1)
    shop.turn()
    shop.reader.server.kick("go")
    assert shop.sent() == b""
    shop.answer("fine")
    assert shop.sent() == wire.response(1, b'"fine"') + wire.kick("go")


def test_a_body_that_is_no_json(shop):
    """… goes to the service as base64."""
    shop.buy(1, b"\xff{")
    shop.turn()
    [asked] = shop.agent.asked[0]["requests"]
    assert (asked["body"], asked["base64"]) == (None, "/3s=")


def test_what_a_browser_writes(shop):
    """Its CESU-8 (two halves, each encoded) reaches the service as it does the table."""
    shop.buy(1, b'{"text":"\xed\xa0\xbd\xed\xb1\x8b"}')
    shop.turn()
    [asked] = shop.agent.asked[0]["requests"]
    assert asked["body"] == {"text": "\N{WAVING HAND SIGN}"}
    assert "base64" not in asked


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 33 + b"]" * 33,
        b'{"n":1e999}',
        b"1" * 400,
        b'{"name":"\\ud800 alone"}',
        b'{"name":"\\ud800"}',
    ],
)
def test_a_body_that_some_libraries_refuse(shop, body):
    """… goes as base64 too, so that it can not fail the requests of others."""
    shop.buy(1, body)
    shop.buy(2, b"[" * 32 + b"7" * 300 + b"]" * 32)
    shop.turn()
    one, two = shop.agent.asked[0]["requests"]
    assert one["body"] is None
    assert base64.b64decode(one["base64"]) == body
    assert "base64" not in two


def test_answers_of_no_use_are_told(shop, logged):
    """Once a minute, with how many they were and why."""
    for number in range(5):
        shop.buy(number + 1)
        shop.turn()
        shop.agent.answer(500)
    shop.clock.advance(60)
    shop.buy(9)
    shop.turn()
    shop.agent.answer(200, b"{")
    told = [one for one in logged if "of no use" in one["log_format"]]
    assert [one["count"] for one in told] == [1, 5]
    assert told[0]["why"] == "answers 500"


def test_answers_that_do_not_fit_are_told(make_reader, logged):
    """… in the same way."""
    protos = {"shop.buy": {"required uInt32 code": 1}}
    shop = Shop(make_reader, {"server_protos": protos})
    for number in (1, 2):
        shop.buy(number)
        shop.turn()
        shop.answer({"price": 3})
    [told] = [one for one in logged if "of no use" in one.get("log_format", "")]
    assert "on shop.buy it can not be sent" in told["why"]


def test_a_service_that_is_away_now_and_then(shop, logged):
    """The log has a line a minute about it, not two for each time-out."""
    for number in range(1, 41):
        shop.buy(number)
        shop.turn()
        if number % 2:
            shop.clock.advance(5)
        else:
            shop.answer("fine")
    told = [one for one in logged if "answer" in one.get("log_format", "")]
    assert len(told) == 4


def test_one_client_leaves_room_for_others(make_reader):
    """He has no more waiting than there are places left, whatever his connections are;
    and the others do not wait behind him.
    """
    shop = Shop(make_reader, waiting=10, batch=4, requests=1)
    for number in range(1, 21):
        shop.buy(number)
    assert shop.answering.outcomes["refused"] == 14
    shop.sent()
    other = FakeConnection(Origin("pomelo", "game", "s-9", "192.0.2.2:1"))
    shop.reader.serve(other)
    other.deliver(wire.package(wire.HANDSHAKE, b'{"sys":{}}') + wire.package(wire.ACK))
    other.deliver(wire.request(70, "shop.buy", b"{}") * 3)
    shop.journal.store_all()
    assert shop.answering.waiting == 9
    shop.turn()
    asked = [one["id"] for one in shop.agent.asked[0]["requests"]]
    assert asked == [1, 70, 2, 70]


def test_compressed_bodies(shop):
    """They are inflated for the service; one that inflates to very much is not put to it."""

    def squeezed(number: int, body: bytes) -> bytes:
        return zipped(wire.request(number, "shop.buy", zlib.compress(body)))

    shop.reader.deliver(squeezed(1, b'{"n":1}'))
    shop.reader.deliver(squeezed(2, b'"' + b"x" * 65_530 + b'"'))
    shop.reader.deliver(squeezed(3, b'"' + b"x" * 65_534 + b'"')[:-1] + b"?")
    shop.journal.store_all()
    shop.turn()
    [one, two, _] = shop.agent.asked[0]["requests"]
    assert one["body"] == {"n": 1}
    assert len(two["body"]) == 65_530


def test_one_that_inflates_to_very_much(make_reader):
    """It is stored, and answered as if there was no answer."""
    shop = Shop(make_reader, {"message_bytes": 1 << 20})
    body = zlib.compress(b'"' + b"x" * 500_000 + b'"')
    shop.reader.deliver(zipped(wire.request(1, "shop.buy", body)))
    shop.journal.store_all()
    assert shop.sent() == wire.response(1, LATE)
    assert len(shop.journal.stored) == 1


def test_no_room_to_keep_it(shop):
    """With all memory taken it is stored, and not put to the service."""
    shop.journal.reservable = 3
    shop.buy(1)
    assert shop.sent() == wire.response(1, LATE)
    assert shop.journal.reserved == 0


def test_definitions_and_codes(make_reader):
    """A request by code, in protobuf, is JSON for the service; so is its answer."""
    more = {
        "routes": ["shop.buy"],
        "client_protos": {"shop.buy": {"required uInt32 item": 1}},
        "server_protos": {
            "shop.buy": {"required uInt32 code": 1, "optional uInt32 price": 2}
        },
    }
    shop = Shop(make_reader, more)
    shop.reader.deliver(wire.request(1, 1, bytes.fromhex("0807")))
    shop.reader.deliver(wire.request(2, "shop.buy", bytes.fromhex("0808")))
    shop.journal.store_all()
    shop.turn()
    asked = shop.agent.asked[0]["requests"]
    assert [one["body"] for one in asked] == [{"item": 7}, {"item": 8}]
    assert [one["route"] for one in asked] == ["shop.buy"] * 2
    shop.answer({"code": 200, "price": 3}, {"price": "much"})
    encoded = shop.reader.server.terms.answered(
        1, "shop.buy", b'{"code":200,"price":3}'
    )
    assert encoded == wire.response(1, bytes.fromhex("08c8011003"))
    late = shop.reader.server.terms.late(2, "shop.buy", {"code": 504})
    assert shop.sent() == encoded + late


def test_pitaya(make_reader, pomelo):
    """Its clients are told by its own code that there is no answer."""
    shop = Shop(make_reader)
    connection, _ = shop.reader.connect()
    connection.deliver(pomelo.hello({"platform": "mac", "libVersion": "1"}))
    connection.clear()
    connection.deliver(wire.request(1, "shop.buy", b"{}"))
    shop.journal.store_all()
    shop.clock.advance(5)
    assert b'{"code":"PIT-504","msg":"no answer"}' in connection.sent


# Answers that come as rows


def test_rows_of_the_outbox_answer(make_reader):
    """By session and id, once, within the time; the oldest first where ids are equal."""
    shop = Shop(make_reader, url=None)
    registry = shop.reader.listener.registry
    session = shop.reader.connection.origin.session
    for number in (7, 8, 7):
        shop.buy(number)
    shop.turn()
    assert registry.answer(session, 7, b'{"first":1}')
    assert registry.answer(session, 7, b'{"second":1}')
    assert not registry.answer(session, 7, b"{}")
    assert not registry.answer("gone", 8, b"{}")
    assert registry.outcomes["nobody"] == 2
    first, second = b'{"first":1}', b'{"second":1}'
    assert shop.sent() == wire.response(7, first) + wire.response(7, second)
    shop.clock.advance(5)
    assert shop.sent() == wire.response(8, LATE)
    assert not registry.answer(session, 8, b"{}")
    with pytest.raises(ValueError, match="JSON"):
        registry.answer(session, 8, b"{")
    assert shop.answering.outcomes == {
        "answered": 2, "late": 1, "failed": 0, "refused": 0
    }  # fmt: skip
    assert shop.journal.reserved == 0


def test_a_row_does_not_answer_for_a_service(shop):
    shop.buy(1)
    session = shop.reader.connection.origin.session
    assert not shop.reader.listener.registry.answer(session, 1, b"{}")
    assert shop.sent() == b""


def test_too_many_wait_for_rows(make_reader):
    """There is an end to those, too."""
    shop = Shop(make_reader, url=None, waiting=1)
    shop.buy(1)
    shop.buy(2)
    assert shop.sent() == wire.response(2, LATE)


def test_one_that_fails_a_whole_post(make_reader):
    """If it may be asked again, each of them is, alone: only the bad one has no answer."""
    shop = Shop(make_reader, repeat=True)
    for number in (1, 2, 3):
        shop.buy(number)
    shop.turn()
    shop.agent.answer(500)
    for _ in range(3):
        shop.turn()
    assert [len(post["requests"]) for post in shop.agent.asked] == [3, 1, 1, 1]
    shop.answer("one")
    shop.agent.answer(500)
    shop.answer("three")
    shop.turn()
    assert len(shop.agent.asked) == 4
    answers = wire.response(1, b'"one"') + wire.response(2, LATE)
    assert shop.sent() == answers + wire.response(3, b'"three"')
    assert shop.answering.outcomes["failed"] == 1


class Crowd:
    """Clients of different addresses at a service that can not take `"bad"`."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self._connections: dict[str, FakeConnection] = {}
        self._served = 0
        self.failed: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def ask(self, who: str, body: bytes = b'"good"') -> None:
        """A request of that client."""
        connection = self._connections.get(who)
        if connection is None:
            peer = f"192.0.2.{len(self._connections) + 1}:1"
            connection = FakeConnection(Origin("pomelo", "game", who, peer))
            self._connections[who] = connection
            self.shop.reader.serve(connection)
            hello = wire.package(wire.HANDSHAKE, b'{"sys":{}}')
            connection.deliver(hello + wire.package(wire.ACK))
        connection.clear()
        connection.deliver(wire.request(70, "shop.buy", body))

    def ask_each(self, players: int, body: bytes = b'"good"') -> None:
        """A request of each of so many."""
        for n in range(players):
            self.ask(f"player {n}", body)

    def serve_each(self, players: int) -> list[int]:
        """A request of each; returns how many each post had."""
        self.ask_each(players)
        return self.serve()

    def refuse(self) -> None:
        """The service takes no connection for what there is."""
        self.shop.journal.store_all()
        self.shop.turn()
        self.shop.agent.fail(Refused())
        self._served += 1

    def serve(self) -> list[int]:
        """Until nothing waits; returns how many requests each post had."""
        self.shop.journal.store_all()
        self.shop.turn()
        agent, sizes = self.shop.agent, []
        while self._served < len(agent.asked):
            asked = agent.asked[self._served]["requests"]
            self._served += 1
            sizes.append(len(asked))
            if any(one["body"] == "bad" for one in asked):
                agent.answer(500)
            else:
                agent.answer(200, {"answers": [1] * len(asked)})
            self.shop.turn()
        for who, connection in self._connections.items():
            found = self.failed if LATE in connection.sent else self.answered
            found[who] += bool(connection.sent)
            connection.clear()
        return sizes


def test_one_that_fails_the_posts_of_others(make_reader):
    """Whoever shared a post with a bad request is asked about alone, once if all is well:
    so he fails one post of others, however often he tries.
    """
    crowd = Crowd(Shop(make_reader, requests=1))
    sizes = []
    for _ in range(50):
        crowd.ask_each(9)
        crowd.ask("mallory", b'"bad"')
        sizes.append(crowd.serve())
    assert crowd.failed.pop("mallory") == 50
    assert set(crowd.failed.values()) == {1}
    assert sum(crowd.failed.values()) == 9
    assert sizes[:2] == [[10], [1] * 10]
    assert sorted(sizes[-1]) == [1, 9], "all others share a post again"


def test_one_that_behaves_in_between(make_reader):
    """Each time he is asked about alone for twice as long."""
    crowd = Crowd(Shop(make_reader, requests=1))
    posts = 0
    for _ in range(300):
        crowd.ask("player")
        crowd.ask("mallory")
        apart = len(crowd.serve()) > 1
        if not apart:
            crowd.ask("player")
            crowd.ask("mallory", b'"bad"')
            crowd.serve()
            posts += 1
    assert crowd.failed["player"] == posts < 10


def test_a_service_that_was_away_for_a_moment(make_reader):
    """Each client is asked about alone once, and then they share posts as before, however
    often that happened long ago.
    """
    shop = Shop(make_reader, requests=1)
    crowd = Crowd(shop)
    for _ in range(5):
        crowd.ask_each(4, b'"bad"')
        crowd.serve()
        assert crowd.serve_each(4) == [1, 1, 1, 1]
        assert crowd.serve_each(4) == [4]
        shop.clock.advance(601)


def test_what_is_owed_lapses(make_reader):
    """Ten minutes after the last failure all share posts again, whatever came before."""
    shop = Shop(make_reader, requests=1)
    crowd = Crowd(shop)
    for _ in range(6):
        crowd.ask_each(4, b'"bad"')
        crowd.serve()
        while crowd.serve_each(4) != [4]:
            pass
    crowd.ask_each(4, b'"bad"')
    crowd.serve()
    assert crowd.serve_each(4) == [1, 1, 1, 1]
    shop.clock.advance(601)
    assert crowd.serve_each(4) == [4]


def test_a_service_without_a_connection_blames_nobody(make_reader):
    """It has seen none of them."""
    shop = Shop(make_reader, requests=1)
    crowd = Crowd(shop)
    crowd.ask_each(4)
    crowd.refuse()
    assert crowd.serve_each(4) == [4]


def test_the_order_of_one_client_is_kept(make_reader):
    """With one post at a time his requests are asked about as they came, alone or not."""
    shop = Shop(make_reader, requests=1, batch=2)
    crowd = Crowd(shop)
    for n in range(6):
        crowd.ask("player", b"%d" % n)
        crowd.ask("mallory", b'"bad"')
    crowd.serve()
    bodies = [one["body"] for post in shop.agent.asked for one in post["requests"]]
    assert [body for body in bodies if body != "bad"] == list(range(6))


def test_who_leaves_before_being_asked_alone(make_reader):
    """Nobody is asked for him."""
    shop = Shop(make_reader, repeat=True)
    shop.buy(1)
    shop.buy(2)
    shop.turn()
    shop.agent.answer(500)
    shop.reader.connection.lose()
    shop.turn()
    assert len(shop.agent.asked) == 1
    assert shop.answering.waiting == 0
