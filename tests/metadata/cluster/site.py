"""A controller under test: its log, what that adds up to, and what is decided, as the leader of the quorum does it."""

from collections.abc import Callable, Sequence

from duramen.metadata.events import Event, decode_event, encode_event
from duramen.metadata.heartbeats import Heartbeat, HeartbeatVerdict, heartbeat
from duramen.metadata.registration import Registration, register
from duramen.metadata.sessions import Membership, Sessions
from duramen.metadata.state import ControllerState

SESSIONS = Sessions(timeout_ms=9_000, grace_ms=200)


class Site:
    """Whatever is decided is committed at once, goes through the bytes of the log, and is shown to `watch`."""

    def __init__(self, watch: Callable[[Event], None] = lambda _: None) -> None:
        self._watch = watch
        self.state = ControllerState()
        self.log: list[bytes] = []
        self.now_ms = 0
        self.membership = Membership(self.state.registrations, 0, SESSIONS)

    @property
    def end_offset(self) -> int:
        """The end of the log."""
        return len(self.log)

    def commit(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events take effect."""
        for event in events:
            value = encode_event(event)
            self.log.append(value)
            self.state.apply(decode_event(value))
            self._watch(event)
        return events

    def register(self, wish: Registration, accepted: Callable[[], None] = lambda: None) -> Sequence[Event]:
        """A node registers; `accepted` is called before that takes effect."""
        is_live = self.membership.is_live(wish.node_id, self.now_ms)
        events = register(self.state, wish, end_offset=self.end_offset, is_live=is_live)
        accepted()
        self.commit(events)
        self.membership.registered(wish.node_id, self.now_ms)
        return events

    def beat(
        self, node_id: int, *, behind: int = 0, stops: bool = False, wants_fence: bool = False
    ) -> HeartbeatVerdict:
        """A node sends a heartbeat in the registration that it has."""
        node = self.state.registrations.get(node_id)
        epoch = -1 if node is None else node.epoch
        beat = Heartbeat(node_id, epoch, self.end_offset - behind, wants_fence, stops)
        verdict = heartbeat(self.state, self.membership, beat, end_offset=self.end_offset, now_ms=self.now_ms)
        self.commit(verdict.events)
        return verdict
