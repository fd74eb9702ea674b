"""A node that is nothing but its cluster side: says on standard output what happens to it, and does what it is told.

`python -m tests.node.cluster.program NODE_ID DIRECTORY LISTEN SEEDS SECRET_FILE TIMEOUTS SNAPSHOT_BYTES`; addresses are
HOST:PORT, seeds have commas between them, and so have timeouts, which are five numbers of ms. It is told by lines on
standard input:

    create NAME    have a stream created: `answered NAME EPOCH OFFSET` or `unanswered NAME WHY`
    describe       the quorum, in one line of JSON
    streams        the names of those that there are
    stop           end as a node does
"""

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from uuid import UUID

import msgspec
import uvloop

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NotController
from duramen.base.ids import Position, new_stream_id
from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer
from duramen.controller.quorum.dependencies import LIMITS
from duramen.controller.quorum.runner import Runner
from duramen.doors.cluster.secret import read_secret
from duramen.doors.completion import outcome
from duramen.host.clock import HostClock, HostRandomness
from duramen.host.files import HostFileSystem
from duramen.host.worker import HostWorker
from duramen.metadata.decisions import Definition, create_stream
from duramen.metadata.events import Event, StreamCreated, decode_event, encode_event
from duramen.node.addresses import bind_all, parse_addresses
from duramen.node.cluster.assembly import Candidate, ClusterAssembly
from duramen.node.cluster.quorum import ClusterParts
from duramen.node.timer import DeadlineTimer
from duramen.raft.effects import Effect
from duramen.raft.timeouts import TIMEOUTS, RaftTimeouts
from duramen.storage.directory import DataDirectory, open_directory
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

_AGAIN_S = 0.01  # a client that asks again at once


def say(line: str) -> None:
    print(line, flush=True)


class Program:
    """The node while it runs."""

    def __init__(self, side: ClusterAssembly, parts: ClusterParts) -> None:
        self._side = side
        self._parts = parts

    def take(self, line: str) -> None:
        """Do what it is told."""
        word, _, rest = line.strip().partition(" ")
        {"create": self._create, "describe": self._describe, "streams": self._streams}[word](rest)

    def _streams(self, _: str) -> None:
        say(f"streams {' '.join(sorted(self._side.state.streams))}")

    def _create(self, name: str) -> None:
        stream_id = new_stream_id(self._parts.randomness.token(16))
        now_ms = self._parts.clock.wall_ms()
        events = create_stream(self._side.state, Definition(name, 1), stream_id=stream_id, now_ms=now_ms)
        self._propose(name, list(map(encode_event, events)))

    def _propose(self, name: str, events: list[bytes]) -> None:
        """Have the node that leads order them, whichever that is; ask again where nothing was done."""

        def done(answer: Buffer | None) -> None:
            code, _, text = ("lost" if answer is None else bytes(answer).decode()).partition(" ")
            if code == NotController.id:
                asyncio.get_running_loop().call_later(_AGAIN_S, self._propose, name, events)
            elif code == "ok":
                say(f"answered {name} {text}")
            else:
                say(f"unanswered {name} {code}: {text}")

        leader = self._side.runner.machine.leader
        body = msgspec.msgpack.encode(events)
        if leader is not None and leader == self._side.runner.machine.me:
            order(self._side.runner, body, done)
        elif leader is None or not self._side.ask(leader.node_id, body, done):
            done(NotController.id.encode())

    def _describe(self, _: str) -> None:
        described = self._side.describe()
        if described is None:
            say("described null")
            return
        voters = {one.replica.node_id: one.log_end_offset for one in described.voters}
        observers = {one.replica.node_id: one.log_end_offset for one in described.observers}
        text = {
            "leader": described.leader_id,
            "epoch": described.leader_epoch,
            "high_watermark": described.high_watermark,
            "voters": voters,
            "observers": observers,
            "endpoints": {voter.id.node_id: voter.endpoint for voter in described.endpoints},
        }
        say(f"described {json.dumps(text)}")


def order(runner: Runner, body: Buffer, answer: Callable[[bytes], None]) -> None:
    """Propose these events, and answer where they are or why not."""

    def done(result: Position | DuramenError) -> None:
        if isinstance(result, DuramenError):
            answer(f"{result.id} {result}".encode())
        else:
            answer(f"ok {result.leader_epoch} {result.offset}".encode())

    runner.propose([decode_event(event) for event in msgspec.msgpack.decode(body, type=list[bytes])], done)


class Watcher:
    """Says what takes effect, and orders what other nodes ask for."""

    stands_for_another = False

    def __init__(self, side: ClusterAssembly) -> None:
        self._side = side

    def on_event(self, event: Event, epoch: int) -> None:
        if isinstance(event, StreamCreated):
            say(f"applied {event.name} {event.id} in epoch {epoch}")

    def restored(self) -> None:
        say("restored from a snapshot")

    def carried_out(self, effect: Effect) -> None:
        del effect

    def quorum_failed(self) -> None:
        pass

    def opened(self, node_id: int) -> None:
        del node_id

    def closed(self, node_id: int) -> None:
        del node_id

    def reachable(self, node_id: int) -> None:
        del node_id

    def handle_controller_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        order(self._side.runner, body, answer)

    def handle_broker_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        del body, answer

    def heard(self, node_id: int, body: Buffer) -> None:
        del node_id, body


def make_parts(directory: DataDirectory, files: HostFileSystem, node_id: int, worker: HostWorker) -> ClusterParts:
    clock, deadlines = HostClock(), Deadlines()
    DeadlineTimer(deadlines, clock).start()
    handles = Handles(files, 16)
    recovered = recover(files, directory.id, handles, say)
    limits = StoreLimits(
        wal_file_bytes=1 << 20, wal_max_bytes=8 << 20, pending_bytes=1 << 20, copy_bytes=1 << 18, copy_interval_ms=500
    )
    store = Store(
        files, worker, clock, deadlines, Metrics(), directory, recovered, handles, node_id=node_id, limits=limits
    )
    return ClusterParts(files, store, worker, clock, deadlines, HostRandomness())


async def run(node: int, where: str, listen: str, seeds: str, secret: str, timeouts: str, snapshot: int) -> None:
    loop = asyncio.get_running_loop()
    files = HostFileSystem(where)
    directory = open_directory(files, HostRandomness(), where)
    worker = HostWorker(loop)
    parts = make_parts(directory, files, node, worker)
    waits = RaftTimeouts(*map(int, timeouts.split(","))) if timeouts else TIMEOUTS
    limits = LIMITS._replace(snapshot_bytes=snapshot) if snapshot else LIMITS
    member = Candidate(node, directory.id, parse_addresses("seeds", seeds), read_secret(secret), waits, limits)
    sockets = bind_all("cluster", "--cluster-listen", parse_addresses("listen", listen))
    side = await ClusterAssembly.start(member, parts, sockets)
    side.member = Watcher(side)
    program = Program(side, parts)
    told = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), _read(program, told))
    joining = loop.create_task(side.joined())
    joining.add_done_callback(lambda task: say(f"joined {_cluster(task)}"))
    side.failure.add_done_callback(lambda _: told.set())
    await told.wait()
    joining.cancel()
    await side.stop()
    error = await outcome(parts.store.stop)
    worker.stop()
    directory.lock.release()
    say(f"stopped: {error}")


def _cluster(task: "asyncio.Task[UUID]") -> str:
    if task.cancelled():
        return "nothing"
    error = task.exception()
    return str(task.result()) if error is None else f"nothing: {error}"


def _read(program: Program, told: asyncio.Event) -> Callable[[], None]:
    def ready() -> None:
        line = sys.stdin.readline()
        if not line or line == "stop\n":
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            told.set()
        else:
            program.take(line)

    return ready


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s: %(message)s")
    node_id, where, listen, seeds, secret, timeouts, snapshot_bytes = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run(int(node_id), where, listen, seeds, secret, timeouts, int(snapshot_bytes)))
        except DuramenError as error:
            say(f"refused: {error}")


if __name__ == "__main__":
    main()
