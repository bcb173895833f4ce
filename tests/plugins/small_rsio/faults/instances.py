"""Faults in telling the lives of a sender apart."""

from rsio_check import wire
from small_rsio.faults.table import fault
from small_rsio.server import Connection, Violated


@fault("only_what_is_announced_is_subscribed", "life_goes_on_over_connections")
class SubscribesUnannounced(Connection):
    """Subscribes to all it knows, announced or not."""

    def begin(self) -> None:
        used, self.used = self.used, self.used - {7}
        super().begin()
        self.used = used


@fault("fenced_life_is_refused", "sender_without_instance_takes_over",
       "life_of_an_unknown_sender_is_refused")  # fmt: skip
class LetsFencedLivesGoOn(Connection):
    """An earlier life takes the stream over again."""

    def refuse_life(self) -> None:
        pass


@fault("later_life_fences_the_earlier")
class CancelsTheEarlierLife(Connection):
    """An earlier life has its stream cancelled, and is not told why."""

    def take_over(self, older: Connection, publisher: str, *, fenced: bool) -> None:
        super().take_over(older, publisher, fenced=False)


@fault("newest_connection_of_a_life_takes_over")
class FencesItsOwnLife(Connection):
    """An older connection of the same life is fenced."""

    def take_over(self, older: Connection, publisher: str, *, fenced: bool) -> None:
        super().take_over(older, publisher, fenced=True)


@fault("later_life_fences_the_earlier", "newest_connection_of_a_life_takes_over")
class LeavesTheEarlierLifeAlone(Connection):
    """Two streams of one sender go on."""

    def take_over(self, older: Connection, publisher: str, *, fenced: bool) -> None:
        pass


@fault("unknown_life_may_go_on", "life_goes_on_over_connections",
       "stream_may_be_announced_again")  # fmt: skip
class RefusesResumedLives(Connection):
    """A life that goes on is always fenced."""

    def on_Announce(self, announce: wire.Announce) -> None:
        if announce.resumed:
            raise Violated("E412 no")
        super().on_Announce(announce)


@fault("life_goes_on_over_connections", "later_life_fences_the_earlier",
       "stream_may_be_announced_again")  # fmt: skip
class BeginsLivesAnew(Connection):
    """Each announced stream begins at the first element."""

    def on_Announce(self, announce: wire.Announce) -> None:
        self.server.known.clear()
        super().on_Announce(announce)


@fault("stream_may_be_announced_at_once")
class CountsAtTheEndOfARead(Connection):
    """What is stored is known when all that arrived with it was looked at."""

    def received(self, data: bytes) -> None:
        self.before = dict(self.server.known)
        super().received(data)

    def subscribe_to(self, publisher: str) -> None:
        counted, self.server.known = self.server.known, self.before
        super().subscribe_to(publisher)
        self.server.known = counted


@fault("stream_may_be_cancelled_before_it_began")
class NotesNoSizeOfWhatItCancelled(Connection):
    """A cancelled stream has no size, whatever its onSubscribe says."""

    def on_OnSubscribe(self, started: wire.OnSubscribe) -> None:
        if self.stream(started.subscriber, started=False).dropped:
            started = wire.OnSubscribe(started.subscriber, 0)
        super().on_OnSubscribe(started)


@fault("announce_is_checked")
class TakesAnyAnnounce(Connection):
    """Any value of resumed is 1."""

    def on_Announce(self, announce: wire.Announce) -> None:
        life = announce.instance or b"x"
        resumed = min(announce.resumed, 1)
        super().on_Announce(wire.Announce(announce.publisher, life, resumed))


@fault("announce_comes_once_for_a_stream")
class IgnoresLaterAnnounces(Connection):
    """An announce for a stream that is not over is ignored."""

    def on_Announce(self, announce: wire.Announce) -> None:
        known = {stream.publisher for stream in self.consumed.values()}
        if announce.publisher not in known:
            super().on_Announce(announce)


@fault("instances_need_offsets")
class TakesAnnounceWithoutOffsets(Connection):
    """Extension 7 is in use without extension 2."""

    def take(self, message: wire.Message) -> None:
        if 7 in self.used or not isinstance(message, wire.Announce):
            super().take(message)


@fault("names_of_one_token_are_senders_apart", token=b"s3cret")
class TakesTheTokenForTheName(Connection):
    """All with one token are one sender."""

    def second_token(self, token: wire.Token) -> None:
        pass
