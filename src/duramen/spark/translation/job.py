"""The job: many streams, each with its own rounds, concurrently in a few threads over one Spark session.

An error of a stream affects only that stream. The job keeps no state besides the tables.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Final

from duramen.base.errors import BugFound, DuramenError
from duramen.spark.declared import DeclaredTable
from duramen.spark.translation.metrics import Account
from duramen.spark.translation.round import RoundOutcome
from duramen.spark.translation.scheduler import RoundScheduler
from duramen.spark.translation.table_writer import TableWriter

__all__ = ["Seen", "TableJob"]

_log = logging.getLogger("duramen.tables")

_LOOK_S: Final = 5.0
_TICK_S: Final = 0.5
_ATTEMPTS_ONCE: Final = 3

Seen = Callable[[str, Account], None]
"""Receives each stream whose round has ended, with its present state."""


class TableJob:
    """Keeps tables up to date until it is stopped, or once."""

    def __init__(
        self,
        find: Callable[[], Mapping[str, DeclaredTable]],
        keeper: Callable[[DeclaredTable], TableWriter],
        *,
        parallel: int,
        seen: Seen,
    ) -> None:
        """`find` returns the streams with tables; at most `parallel` rounds run concurrently."""
        self._find = find
        self._keeper = keeper
        self._parallel = parallel
        self._seen = seen
        self._turns = RoundScheduler()
        self._keepers: dict[str, tuple[DeclaredTable, TableWriter]] = {}
        self._stop = Event()
        self._finished: set[str] = set()

    def accounts(self) -> dict[str, Account]:
        """The state of each table."""
        return {name: keeper.account for name, (_, keeper) in list(self._keepers.items())}

    def stop(self) -> None:
        """End after the rounds in progress."""
        self._stop.set()

    def run(self, *, once: bool = False) -> bool:
        """Keep the tables up to date; `once`: until each reaches its stream's end, or has failed three times.

        Returns whether none of them is failing. Raises the first error of `find`.
        """
        self._look(self._find(), once=once)
        looked_s = time.monotonic()
        running: dict[Future[RoundOutcome], str] = {}
        with ThreadPoolExecutor(self._parallel, "duramen-table") as pool:
            while not self._stop.is_set() and not (once and not running and self._over()):
                now_s = time.monotonic()
                if not once and now_s - looked_s >= _LOOK_S:
                    looked_s = now_s
                    self._look_again()
                for name in self._turns.take(now_s, self._parallel):
                    running[pool.submit(self._keepers[name][1].attend)] = name
                self._wait(running)
                self._gather(running, once=once)
            wait(running)
            self._gather(running, once=once)
        for _, keeper in self._keepers.values():
            keeper.close()
        return not any(account.error for account in self.accounts().values())

    def _over(self) -> bool:
        return self._finished >= self._keepers.keys()

    def _look_again(self) -> None:
        try:
            self._look(self._find(), once=False)
        except DuramenError as error:
            _log.warning("the streams could not be listed: %s; the job continues with the known ones", error)

    def _look(self, found: Mapping[str, DeclaredTable], *, once: bool) -> None:
        accounts = self.accounts()
        for name in [name for name in self._keepers if name not in self._turns.busy]:
            if found.get(name) != self._keepers[name][0]:
                self._keepers.pop(name)[1].close()
        for name, declared in found.items():
            if name not in self._keepers:
                keeper = self._keeper(declared)
                keeper.account = accounts.get(name, keeper.account)
                if once:
                    keeper.stop_at_the_end()
                self._keepers[name] = declared, keeper
        self._turns.know({name: declared.max_lag_ms for name, (declared, _) in self._keepers.items()}, time.monotonic())

    def _wait(self, running: Mapping[Future[RoundOutcome], str]) -> None:
        idle_s = self._turns.wait_s(time.monotonic(), self._parallel)
        pause_s = _TICK_S if idle_s is None else min(_TICK_S, idle_s)
        if running:
            wait(running, pause_s, FIRST_COMPLETED)
        else:
            self._stop.wait(pause_s)

    def _gather(self, running: dict[Future[RoundOutcome], str], *, once: bool) -> None:
        for future in [one for one in running if one.done()]:
            name = running.pop(future)
            now_s = time.monotonic()
            error = future.exception()
            if error is None:
                outcome = future.result()
                self._turns.done(name, now_s, behind=outcome.behind)
                if once and not outcome.behind:
                    self._finish(name)
            else:
                self._failed(name, error, now_s, once=once)
            self._seen(name, self._keepers[name][1].account)

    def _failed(self, name: str, error: BaseException, now_s: float, *, once: bool) -> None:
        if not isinstance(error, DuramenError):  # an error of a library: it affects only this stream, not the job
            error = BugFound(f"{type(error).__name__}: {error}")
            self._keepers[name][1].account.fail(error)
        self._turns.failed(name, now_s)
        if once and self._turns.failures(name) >= _ATTEMPTS_ONCE:
            self._finish(name)

    def _finish(self, name: str) -> None:
        self._finished.add(name)
        self._turns.know(
            {one: kept[0].max_lag_ms for one, kept in self._keepers.items() if one not in self._finished},
            time.monotonic(),
        )
