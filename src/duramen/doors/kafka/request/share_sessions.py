"""Share sessions (KIP-932): the share partitions that a consumer reads, sent once, and their rotation.

A session belongs to a consumer: group and member id. It ends with its connection. The number of sessions and of their
partitions is bounded.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from duramen.base.errors import ShareSessionEpochInvalid, ShareSessionLimitReached, ShareSessionNotFound
from duramen.base.metrics import Counter
from duramen.coordinators.share.fetch import ShareFetcher
from duramen.coordinators.share.shares import Sharing
from duramen.doors.kafka.request.exchange import Channel
from duramen.groups.share_records import ShareKey
from duramen.service.light_topics import LastingId
from duramen.service.resolve import TopicKey

__all__ = ["CLOSING", "OPENING", "ShareSession", "ShareSessions"]

OPENING: Final = 0
CLOSING: Final = -1
_LAST_EPOCH: Final = (1 << 31) - 1


class ShareSession:
    """A session. `epoch` is that of the next request; `fetcher` is a fetch that waits for records.

    `partitions` has each share partition as the client names it, and as state is stored of it: the ids differ for
    topics of the inventory. None: no such topic is known yet.
    """

    __slots__ = ("channel", "epoch", "fetcher", "group", "member_id", "partitions")

    def __init__(self, group: str, member_id: str, channel: Channel) -> None:
        self.group = group
        self.member_id = member_id
        self.channel = channel
        self.epoch = 1
        self.partitions: dict[ShareKey, ShareKey | None] = {}
        self.fetcher: ShareFetcher | None = None

    @property
    def stored(self) -> list[ShareKey]:
        """Its partitions, as state is stored of them."""
        return [stored for stored in self.partitions.values() if stored is not None]

    def rotated(self) -> list[ShareKey]:
        """Its partitions, each time from another on, so that none of them starves."""
        keys = list(self.partitions)
        at = self.epoch % len(keys) if keys else 0
        return keys[at:] + keys[:at]


class ShareSessions:
    """Every share session."""

    def __init__(self, sharing: Sharing, gauge: Counter, *, most: int, most_partitions: int) -> None:
        """`gauge` shows how many there are."""
        self._sharing = sharing
        self._gauge = gauge
        self._most = most
        self._most_partitions = most_partitions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_channel: dict[Channel, set[ShareSession]] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def take(self, group: str, member_id: str, epoch: int, channel: Channel) -> ShareSession:
        """The session of a request, a new one in epoch 0.

        Raises ShareSessionNotFound, ShareSessionEpochInvalid, ShareSessionLimitReached.
        """
        found = self._sessions.get((group, member_id))
        if epoch == OPENING:
            if found is not None:
                self._forget(found)
            elif len(self._sessions) >= self._most:
                raise ShareSessionLimitReached(f"there are {self._most} share sessions already")
            found = ShareSession(group, member_id, channel)
            self._sessions[group, member_id] = found
            self._by_channel.setdefault(channel, set()).add(found)
            self._gauge.value = len(self._sessions)
            return found
        if found is None:
            raise ShareSessionNotFound(f"member {member_id} of group {group} has no share session")
        if epoch != CLOSING:
            if epoch != found.epoch:
                raise ShareSessionEpochInvalid(f"the share session is in epoch {found.epoch}, not {epoch}")
            found.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return found

    def find(self, group: str, member_id: str) -> ShareSession | None:
        """The session of a member, if it has one."""
        return self._sessions.get((group, member_id))

    def topics(self, group: str, member_id: str) -> Sequence[TopicKey]:
        """The topics of a session, if there is one; those of the inventory by their lasting ids too."""
        found = self.find(group, member_id)
        if found is None:
            return ()
        ids = {key.topic_id: stored for key, stored in found.partitions.items()}
        lasting = [stored.topic_id for id_, stored in ids.items() if stored is not None and stored.topic_id != id_]
        return [*ids, *(LastingId(id_.hex) for id_ in lasting)]

    def change(
        self, session: ShareSession, added: Mapping[ShareKey, ShareKey | None], forgotten: Iterable[ShareKey]
    ) -> None:  # fmt: skip
        """Add and remove partitions of the session. Raises ShareSessionLimitReached."""
        self._partitions -= len(session.partitions)
        for key in forgotten:
            session.partitions.pop(key, None)
        new = {key: stored for key, stored in added.items() if key not in session.partitions}
        if self._partitions + len(session.partitions) + len(new) > self._most_partitions:
            self._partitions += len(session.partitions)
            raise ShareSessionLimitReached(f"share sessions have {self._most_partitions} partitions already")
        session.partitions.update(new)
        self._partitions += len(session.partitions)

    def close(self, session: ShareSession) -> None:
        """End a session; the caller releases its consumer's records."""
        if self._sessions.get((session.group, session.member_id)) is session:
            self._forget(session)

    def _forget(self, session: ShareSession) -> None:
        del self._sessions[session.group, session.member_id]
        self._gauge.value = len(self._sessions)
        self._partitions -= len(session.partitions)
        if session.fetcher is not None:
            session.fetcher.cancel()
        mine = self._by_channel.get(session.channel)
        if mine is not None:
            mine.discard(session)
            if not mine:
                del self._by_channel[session.channel]

    def closed(self, channel: Channel) -> None:
        """A connection is closed, and with it its sessions: records acquired by their consumers are delivered again."""
        for session in list(self._by_channel.get(channel, ())):
            self._forget(session)
            self._sharing.release(session.member_id, session.stored, lambda: None)
