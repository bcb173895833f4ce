"""One request that fails a whole post: whoever shared it is asked about alone, and for how long."""

from collections import Counter

from twisted.internet.error import ConnectionRefusedError as Refused

from gateway.event import Origin
from gateway.protocols.pomelo import wire
from gateway.testing import FakeConnection
from pomelo_shop import LATE, Shop


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
