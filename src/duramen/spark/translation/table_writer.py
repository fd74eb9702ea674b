"""One stream's table in a job: its rounds, its published progress, and its maintenance. One thread at a time."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from duramen.base.catalogue.tables import KEPT_OFFSETS
from duramen.base.errors import BugFound, DuramenError
from duramen.client import BrokerCluster, StreamAdmin
from duramen.spark.tables.port import LakeTable
from duramen.spark.translation.log import SourceLog, bounds, newest_wait_ms
from duramen.spark.translation.metrics import Account
from duramen.spark.translation.progress import Note, leave
from duramen.spark.translation.round import Round, RoundOutcome

__all__ = ["TableWriter"]

_TELL_S: Final = 5.0
_TELL_NEEDED_S: Final = 60.0
_TIMEOUT_S: Final = 30.0
_COMPACT_S: Final = 600.0
_CLEAN_S: Final = 3600.0


class TableWriter:
    """Keeps one table up to date."""

    def __init__(self, log: SourceLog, round_: Round, open_table: Callable[[], LakeTable], *, keep_ms: int) -> None:
        """`keep_ms`: how long data that no reader of the table's newest state needs is kept."""
        self.account = Account()
        self._log = log
        self._round = round_
        self._open_table = open_table
        self._keep_ms = keep_ms
        self._cluster: BrokerCluster | None = None
        self._told_s = float("-inf")
        self._compacted_s = self._cleaned_s = time.monotonic()
        self._upto: Mapping[int, int] | None = None
        self._needed_s = float("-inf")
        self._needed: Mapping[int, int] = {}

    def close(self) -> None:
        """Close its connections."""
        if self._cluster is not None:
            self._cluster.close()

    def stop_at_the_end(self) -> None:
        """Stop at the end that the stream has in the first round."""
        self._upto = {}

    def attend(self) -> RoundOutcome:
        """Run one round, and its follow-up work. Raises DuramenError; the table is unchanged then."""
        try:
            cluster = self._connected()
            if self._upto is not None and not self._upto:
                self._upto = {at: end for at, (_, end) in bounds(cluster, self._log).items()}
            outcome = self._round.run(cluster, self._upto)
        except Exception as error:  # noqa: BLE001 -- `duramen table status` tells of each
            failed = error if isinstance(error, DuramenError) else BugFound(f"{type(error).__name__}: {error}")
            self.account.fail(failed)
            self._told_s = float("-inf")
            self._tell()
            raise failed from error.__cause__
        self.account.add(outcome, time.time_ns() // 1_000_000)
        self._tell()
        self._tell_needed(at_the_end=self._upto is not None and not outcome.behind)
        if not outcome.behind:
            self._upkeep()
        return outcome

    def _connected(self) -> BrokerCluster:
        if self._cluster is None:
            self._cluster = BrokerCluster(self._log.servers, client_id="duramen-table", timeout_s=_TIMEOUT_S)
        return self._cluster

    def _tell(self) -> None:
        """Publish lag and errors; a failure stops nothing."""
        now_s = time.monotonic()
        if now_s - self._told_s < _TELL_S:
            return
        self._told_s = now_s
        now_ms = time.time_ns() // 1_000_000
        try:
            cluster = self._connected()
            there, ends = bounds(cluster, self._log), self._open_table().ends()
            at = {partition: ends.get(partition, first) for partition, (first, _) in there.items()}
            behind = [(partition, max(at[partition], first)) for partition, (first, end) in there.items()
                      if at[partition] < end and first < end]  # fmt: skip
            self.account.lag_records = sum(end - at[partition] for partition, (_, end) in there.items())
            self.account.lag_ms = newest_wait_ms(cluster, self._log, behind, now_ms)
            leave(cluster, self._log.stream, at, Note(now_ms, self.account.error))
        except DuramenError:
            return

    def _tell_needed(self, *, at_the_end: bool) -> None:
        """Update the stream's config with the offsets that retention must keep.

        Without an update they are kept for longer.
        """
        now_s, needed = time.monotonic(), self._round.needed_from
        if needed == self._needed or (now_s - self._needed_s < _TELL_NEEDED_S and not at_the_end):
            return
        self._needed_s = now_s
        text = ",".join(f"{partition}:{offset}" for partition, offset in sorted(needed.items()))
        try:
            StreamAdmin(self._connected()).set_stream_configs(self._log.stream, {KEPT_OFFSETS: text})
        except DuramenError:
            return
        self._needed = needed

    def _upkeep(self) -> None:
        """Join small files now and then; later, remove unneeded data. Errors are left to the next round."""
        now_s = time.monotonic()
        if now_s - self._compacted_s < _COMPACT_S:
            return
        self._compacted_s = now_s
        try:
            table = self._open_table()
            table.compact()
            if now_s - self._cleaned_s >= _CLEAN_S:
                self._cleaned_s = now_s
                before_ms = time.time_ns() // 1_000_000 - self._keep_ms
                table.expire(older_than_ms=before_ms)
                table.vacuum(older_than_ms=before_ms)
        except DuramenError as error:
            self.account.fail(error)
