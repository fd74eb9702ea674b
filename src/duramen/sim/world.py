"""One run: a node on the simulated disk, driven by a seed, stopped and restarted until it has run long enough.

The directory, recovery, store, broker and groups are real; the ports are the disk, the scheduler's worker and clock, a
map for the view of offsets, and the seed for randomness.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DuramenError, LogDamaged
from duramen.base.ids import METADATA_LOG_ID
from duramen.base.metrics import Metrics
from duramen.base.settings import Settings
from duramen.coordinators.queue.shard import queue_kind
from duramen.service.assembly import Ports
from duramen.service.broker import Broker
from duramen.sim.checkers.checker import Checker, facts
from duramen.sim.checkers.history import End, LogHistory
from duramen.sim.clients.access import AtTheBroker, NodeAccess
from duramen.sim.clients.door import AtTheDoor
from duramen.sim.clients.shared import Clients
from duramen.sim.clients.workload import Workload
from duramen.sim.machine.clock import SeededRandomness
from duramen.sim.machine.disk import Crashed, MemoryFileSystem
from duramen.sim.machine.disk_damage import Decay, Decayed
from duramen.sim.machine.faults import FaultPlan
from duramen.sim.machine.profiles import LIMITS, PROFILES, view_limits
from duramen.sim.machine.scheduler import SeededWorker, VirtualClock
from duramen.sim.machine.stages import STAGES, VIEW
from duramen.sim.machine.trace import BrokenPromise, Trace
from duramen.sim.machine.view_damage import ViewDamage
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.directory import open_directory
from duramen.storage.log.log import Log, log_directory
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store

__all__ = ["NodeWorld", "RunOutcome"]

_SETTINGS: Final = Settings(
    BROKER,
    options={
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 500,
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
        "log.retention.check.interval.ms": 250,
        "log.cleaner.backoff.ms": 100,
        "scrub.interval.ms": 300,
    },
)
_METADATA: Final = log_directory(METADATA_LOG_ID)
_KEYED: Final = 0.3  # of the runs have keyed streams
_QUEUES: Final = 0.25  # of the runs in which nothing is damaged at rest have queues
_CHECKPOINT_RECORDS: Final = 12
_ROWS_DAMAGED: Final = 0.15  # of the ends of processes in such runs
_ENDS: Final = 12  # of processes, in a run
_PATIENCE_MS: Final = 600_000


class RunOutcome(NamedTuple):
    """The outcome of a run: `broken` is empty if every promise was kept."""

    seed: int
    broken: str
    trace: list[str]
    crashes: int
    counts: Counter[tuple[str, str]]


class NodeWorld:
    """A node and its disk. `run` is all there is to do."""

    def __init__(self, seed: int, write: Callable[[str], object] | None = None) -> None:
        """`write` gets each line of the trace."""
        self.seed = seed
        chance = random.Random(f"{seed}/world")
        self.profile = chance.choice(PROFILES)
        self._limits = chance.choice(LIMITS)
        self._open_segments = chance.choice((1, 3, 64))
        self._chance = chance
        self._way = random.Random(f"{seed}/way")
        self._schedule = random.Random(f"{seed}/schedule")
        self.clock = VirtualClock()
        self.trace = Trace(self.clock, write)
        self.disk = MemoryFileSystem()
        self.rows = MemoryStateStore()
        keyed = random.Random(f"{seed}/keyed")
        self.keyed = keyed.random() < _KEYED
        self._view_limits = view_limits(keyed, random.Random(f"{seed}/filed"))
        stages = [stage for stage in STAGES if self.keyed or stage != VIEW]
        self.faults = FaultPlan(random.Random(f"{seed}/faults"), self.profile, self.disk, self.trace, stages)
        self.checker = Checker()
        self._clients = clients = Clients(
            random.Random(f"{seed}/workload"), random.Random(f"{seed}/refusals"), self.checker, self.faults, self.clock,
            self.trace, keyed=self.keyed,
        )  # fmt: skip
        queues = random.Random(f"{seed}/queue space")
        damaged = self.profile.flips or self.profile.decays
        self.queues = queues if queues.random() < _QUEUES and not damaged else None
        self.workload = Workload(clients, self.queues, random.Random(f"{seed}/queue producers"))
        self._decay = Decay(self.disk, random.Random(f"{seed}/decay"))
        self._view_damage = ViewDamage(self.disk, keyed)
        self.crashes = 0
        self._end: End = "stop"
        self._randomness = SeededRandomness(seed)

    def run(self) -> RunOutcome:
        """Live through it all."""
        self.trace("seed %d, profile %s, WAL files of %d bytes", self.seed, self.profile.name, self._limits[0])
        broken = ""
        try:
            for _ in range(_ENDS):
                self._process()
            self._last_process()
            if self.faults.decays:
                self._metadata_damaged()
        except BrokenPromise as promise:
            broken = str(promise)
            self.trace("BROKEN: %s", broken)
        return RunOutcome(self.seed, broken, self.trace.last(), self.crashes, self.faults.counts)

    # -- a process ----------------------------------------------------------------------------------

    def _process(self) -> None:
        """From one start to its end, of whatever kind."""
        self.worker = SeededWorker(self.clock, self._schedule, self._unexpected, self._began)
        self.faults.arm(self.worker)
        lost = self.faults.without_indexes
        for found in self._decay.no_indexes(lost) if lost else ():
            self.faults.decayed(found, "recovery")
        known: Broker | None = None
        broker: Broker | None = None
        try:
            known = broker = self._boot()
            if broker is not None:
                self.faults.decay = partial(self._decay_at_work, broker)
                self.workload.begin(broker, self.worker, self._access(broker))
                while not self.workload.over:
                    self._turn()
                if not self.profile.ends or self._chance.random() < 0.5:
                    broker = self._stop(broker)
        except Crashed as crashed:
            self.trace("crashed: %s", crashed)
        self._over(broker)
        if known is not None:
            self._decay_at_rest(known)

    def _access(self, broker: Broker) -> NodeAccess:
        """How clients reach this process."""
        if self._way.random() < 0.5:
            return AtTheBroker(broker)
        self.trace("clients come through the Kafka door")
        return AtTheDoor(broker, self.worker, self.clock, self._way, lambda: self._clients.stopping)

    def _over(self, broker: Broker | None) -> None:
        """The process is not there any more; `broker` is None where it was stopped in good order, or never there."""
        self.faults.disarm()
        self.faults.decay = None
        end = self.faults.end
        if broker is not None:
            self.checker.ended(broker, self.disk.exists)
            end = end or self._chance.choice(self.profile.ends or ("kill",))
        lost = self.faults.failed_syncs > 0  # pages of a failed sync may be gone without a power loss
        if end is None:
            self.disk.end_process()
            self._end = self._worse("stop" if self._stopped else "power loss" if lost else "kill")
            return
        self.crashes += 1
        self._end = self._worse("power loss" if lost else end)
        self.trace("the process ends by a %s", end)
        if end == "power loss":
            self.disk.crash(self._schedule)
            self.rows.crash(self._schedule)
        else:
            self.disk.end_process()
        if broker is not None:
            logs = self.checker.exposed(broker)
            found = self.faults.flip(logs)
            if found is not None:
                logs[found.log_id].damage(found.base_offset, found.next_offset)
                self.checker.believing()

    def _decay_at_rest(self, broker: Broker) -> None:
        """No process runs: perhaps a file is damaged before the next one."""
        if self.faults.decays:
            logs = self.checker.at_rest(broker)
            # After a loss of power the header of an index, which says whose log it is, may be gone too.
            checkpoints = self._end != "power loss" and self.checker.checkable
            found = self._decay.at_rest([*logs, *self.checker.of_offsets(broker)], checkpoints=checkpoints)
            self._decayed(found, logs, "recovery")
        self._decay.remember()
        if self.queues is not None and self.rows.readable and self.queues.random() < _ROWS_DAMAGED:
            self.trace("the rows of coordinators are damaged")
            self.rows.damage(checkpoints=self.queues.randrange(self.rows.readable))
        if self.keyed:
            damaged = self._view_damage.at_rest()
            if damaged is not None:
                self.faults.decayed(damaged, VIEW)

    def _decay_at_work(self, broker: Broker, stage: str, damage: str) -> bool:
        """Damage something in the middle of a stage, of a given kind if there is one; False if nothing was damaged."""
        if stage == VIEW:
            damaged = self._view_damage.at_work(damage)
            self._decayed(damaged, {}, stage)
            return damaged is not None
        logs = self.checker.at_rest(broker)
        found = self._decay.at_work(logs, damage)
        self._decayed(found, logs, stage)
        return found is not None

    def _decayed(self, found: Decayed | None, logs: Mapping[Log, LogHistory], stage: str) -> None:
        if found is None:
            return
        self.faults.decayed(found, stage)
        if found.unchecked:
            self.checker.unchecked()
        if found.log_id >= 0 and all(log.id != found.log_id for log in logs):
            self.checker.offsets_damaged()
        for log, history in logs.items():
            if log.id == found.log_id:
                for base_offset, next_offset in found.ranges:
                    self.trace("%s: %d to %d may be lost", history, base_offset, next_offset - 1)
                    history.damage(base_offset, next_offset)

    def _worse(self, end: End) -> End:
        """The events since a node was last up, which the checker has to assume."""
        return max((self._end, end), key=("stop", "kill", "power loss").index)

    def _last_process(self) -> None:
        """Once more without a fault: everything is there and can be read."""
        self.worker = SeededWorker(self.clock, self._schedule, self._unexpected, self._began)
        self.disk.cold = False
        broker = self._boot()
        if broker is None:
            raise BrokenPromise("the node does not start although nothing fails any more")
        scrubbed = self.profile.decays > 0 and self._chance.random() < 0.7
        if scrubbed:
            rounds = self._metrics.counter("duramen_scrub_rounds_total")
            self._until(lambda: rounds.value > 0, "scrub")
        self.workload.begin(broker, self.worker, self._access(broker), quiet=True, scrubbed=scrubbed)
        while not self.workload.over:
            self._turn()
        if self._stop(broker) is not None:
            raise BrokenPromise("the node does not stop although nothing fails any more")

    def _metadata_damaged(self) -> None:
        """No start is better than one without some of the streams; and it does no harm."""
        paths = [path for path in self.disk.paths() if path.startswith(f"{_METADATA}/") and path.endswith(".log")]
        self.disk.end_process()
        path = self._chance.choice(paths) if paths else ""
        if not path or not self.disk.content(path):
            return
        place = self._chance.randrange(len(self.disk.content(path)))
        self.disk.corrupt(path, place, 4)
        self.faults.decayed(Decayed("bit flip", path, place), "recovery")
        self.worker = SeededWorker(self.clock, self._schedule, self._unexpected, self._began)
        try:
            broker = self._started()
        except LogDamaged as error:
            self.trace("the node does not start: %s", error)
            if _METADATA not in str(error):
                raise BrokenPromise(f"the metadata log is damaged, and a start is refused with {error}") from error
            self.disk.end_process()
            self.disk.corrupt(path, place, 4)
            self.worker = SeededWorker(self.clock, self._schedule, self._unexpected, self._began)
            broker = self._started()
        self.checker.started(broker, "stop", self._found)

    # -- starting and stopping ----------------------------------------------------------------------

    def _boot(self) -> Broker | None:
        """Start the node; None where the disk does not let it, which must be a fault's doing."""
        self._stopped = False
        self.faults.starting = True
        try:
            broker = self._started()
        except (DuramenError, OSError) as error:
            self.trace("the node does not start: %s", error)
            if not self.faults.failed:
                raise BrokenPromise(f"the node does not start: {error}") from error
            return None
        finally:
            self.faults.starting = False
        self.trace("process %d has started in epoch %d, after a %s", self.checker.boot + 1,
                   broker.store.node_epoch, self._end)  # fmt: skip
        self.checker.started(broker, self._end, self._found)
        self._end = "stop"
        return broker

    def _started(self) -> Broker:
        directory = open_directory(self.disk, self._randomness, "the simulated disk")
        handles = Handles(self.disk, self._open_segments)
        try:
            recovered = recover(self.disk, directory.id, handles, self._report)
            metrics = self._metrics = Metrics()
            store = Store(
                self.disk, self.worker, self.clock, self.worker.deadlines, metrics, directory, recovered, handles,
                node_id=1, limits=self._limits,
            )  # fmt: skip
        except (AssertionError, ValueError, LookupError, TypeError, StopIteration) as error:
            raise self._unexpected(error) from error
        self._found = {log.key: facts(log) for log in store.each_log()}
        ports = Ports(self.worker, self.clock, self._randomness, lambda: self.rows)
        broker = Broker(
            ports, self.worker.deadlines, store, _SETTINGS, metrics, directory_id=str(directory.id),
            report=self._report, view_limits=self._view_limits,
            kinds=() if self.queues is None else (queue_kind(_CHECKPOINT_RECORDS),),
        )  # fmt: skip
        outcome: list[DuramenError | None] = []
        broker.start(outcome.append)
        self._until(lambda: bool(outcome), "start")
        if outcome[0] is not None:
            raise outcome[0]
        return broker

    def _stop(self, broker: Broker) -> Broker | None:
        """Stop in good order; None where that went well."""
        self._clients.stopping = True
        outcome: list[OSError | None] = []
        broker.stop(outcome.append)
        self._until(lambda: bool(outcome), "stop")
        self.checker.ended(broker, self.disk.exists)
        if outcome[0] is not None:
            self.trace("stopping failed: %s", outcome[0])
            return broker
        self.trace("stopped")
        self.checker.stopped(broker)
        self._stopped = True
        return None

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        limit_ms = self.clock.monotonic_ms() + _PATIENCE_MS
        while not condition():
            if not self.worker.turn() or self.clock.monotonic_ms() > limit_ms:
                raise BrokenPromise(f"the node does not {what}: nothing is left to happen")

    def _turn(self) -> None:
        if not self.worker.turn():
            raise BrokenPromise("nothing is left to happen")

    # -- notifications ------------------------------------------------------------------------------

    def _unexpected(self, error: BaseException) -> BaseException:
        return BrokenPromise(f"{type(error).__name__} where none may be: {error}")

    def _report(self, finding: str) -> None:
        self.trace("reported: %s", finding)

    def _began(self, lane: str, job: Callable[[], object]) -> None:
        self.trace("%s: %s", lane, getattr(getattr(job, "func", job), "__qualname__", ""))
