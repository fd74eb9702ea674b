"""The start of a broker: the metadata, then the coordinators' states, then the cluster; then periodic work."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, StorageFailed
from duramen.base.ids import METADATA_STREAM_ID
from duramen.broker.membership import MetadataListener
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.inventory.shard import INVENTORY_STREAM
from duramen.service.assembly import BrokerParts

__all__ = ["Startup"]

Done = Callable[[DuramenError | None], None]


class Startup:
    """Starts a broker of these parts, once. `listener` gets the metadata."""

    def __init__(self, parts: BrokerParts, listener: MetadataListener, done: Done) -> None:
        self._parts = parts
        self._listener = listener
        self._done = done

    def begin(self) -> None:
        """Take in the metadata and the groups; then `done(None)`, and requests may come."""
        self._parts.membership.start(self._listener, self._metadata_ready)

    def _metadata_ready(self, error: DuramenError | None) -> None:
        if error is not None:
            self._done(error)
            return
        parts = self._parts
        self._listener.restored()
        parts.store.name_leaders(parts.membership.leader_of)
        if parts.alone:
            for log in parts.store.each_log():
                parts.store.bound_forgotten(log, parts.metadata_state.highest_producer_id)
        parts.gaps.measure()
        if parts.alone:
            parts.coordinators.when_loaded(OFFSETS_STREAM, self._offsets_ready)
        else:
            self._offsets_ready(None)

    def _offsets_ready(self, error: DuramenError | OSError | None) -> None:
        if error is not None:
            self._done(_storage_error("the stream of consumer offsets cannot be read", error))
        else:
            self._parts.share_nodes.started(self._shares_ready)

    def _shares_ready(self, error: DuramenError | None) -> None:
        if error is not None:
            self._done(error)
        else:
            self._parts.transactions.restore(self._transactions_ready)

    def _transactions_ready(self, error: DuramenError | OSError | None) -> None:
        if error is not None:
            self._done(_storage_error("the stream of transactions cannot be read", error))
        elif self._parts.alone:
            # Names of its topics would be unknown; a damaged shard does not prevent the start.
            self._parts.coordinators.when_loaded(INVENTORY_STREAM, lambda _: self._groups_ready())
        else:
            self._groups_ready()

    def _groups_ready(self) -> None:
        parts, settings = self._parts, self._parts.settings
        # As late as can be: members have a whole session from here on, and no requests of theirs may come before.
        parts.groups.restore()
        self._every("log.retention.check.interval.ms", self._enforce_retention)
        self._every("log.cleaner.backoff.ms", parts.store.compact)
        self._every("transaction.abort.timed.out.transaction.cleanup.interval.ms", parts.transactions.abort_timed_out)
        self._every("transaction.remove.expired.transaction.cleanup.interval.ms", parts.transactions.expire)
        self._every("offsets.retention.check.interval.ms", parts.groups.expiration.expire)
        self._every("share.coordinator.state.topic.prune.interval.ms", self._tidy_shares)
        parts.store.scrubber.start(settings.integer("scrub.bytes.per.second"), settings.integer("scrub.interval.ms"))
        parts.membership.join(self._joined)

    def _joined(self, error: DuramenError | None) -> None:
        if error is None:
            self._remove_orphans()
            self._parts.views.remove_leftovers()
            self._parts.inventory.start()
            self._parts.unclean.on_event(None)
        self._done(error)

    def _remove_orphans(self) -> None:
        # A stream's deletion is durable before its logs are deleted: a crash in between leaves them behind.
        parts = self._parts
        for log in list(parts.store.each_log()):
            stream_id = log.key.stream_id
            if stream_id == METADATA_STREAM_ID or parts.metadata_state.stream_by_id(stream_id) is not None:
                continue
            if parts.membership.is_gone(stream_id):
                parts.store.delete(log)
            else:
                parts.report(
                    f"{log.directory} holds partition {log.key.partition} of the stream {stream_id}, which the metadata"
                    " log does not know; its records are left where they are and not served"
                )

    # -- rounds -------------------------------------------------------------------------------------

    def _every(self, setting: str, action: Callable[[], None]) -> None:
        parts, interval_ms = self._parts, self._parts.settings.integer(setting)

        def due() -> None:
            parts.deadlines.at(parts.clock.monotonic_ms() + interval_ms, due)
            action()

        parts.deadlines.at(parts.clock.monotonic_ms() + interval_ms, due)

    def _enforce_retention(self) -> None:
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        parts.store.enforce_retention(now_ms)
        parts.store.expire_producers(now_ms - parts.settings.integer("producer.id.expiration.ms"))
        parts.coordinators.states.flush(lambda: None)

    def _tidy_shares(self) -> None:
        self._parts.share_nodes.tidy()
        self._parts.share_groups.tidy(self._parts.share_nodes.is_gone)


def _storage_error(what: str, error: DuramenError | OSError) -> DuramenError:
    return error if isinstance(error, DuramenError) else StorageFailed(f"{what}: {error}")
