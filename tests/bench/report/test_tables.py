"""Tables: ratios stand beside their figures, percentiles that are not carried are left out."""

from rich.console import Console
from rich.table import Table

from duramen.bench.latency import BARE_SYNCED, LatencyCell
from duramen.bench.load.percentiles import Latencies
from duramen.bench.report.tables import latency_table, targets_table, throughput_table
from duramen.bench.report.targets import at_least, not_measured
from duramen.bench.throughput import ThroughputCell


def _text(table: Table) -> str:
    console = Console(width=240, record=True, quiet=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def _row(text: str, who: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if who in line]
    return [cell.strip() for cell in line.strip("│ ").split("│")]


def test_latency() -> None:
    cells = [
        LatencyCell(BARE_SYNCED, "file", 256, [Latencies([200] * 100)]),
        LatencyCell("duramen sync", "kafka", 256, [Latencies([400] * 50), Latencies([600] * 50)]),
        LatencyCell("duramen os", "kafka", 256, [Latencies([250] * 100)]),
    ]
    row = _row(_text(latency_table(cells)), "duramen sync")
    assert row[:2] == ["256 B", "duramen sync (kafka)"]
    assert row[2:8] == ["0.40", "0.40", "0.60", "max", "max", "0.60"]
    assert row[9] == "0.40-0.60"
    assert row[11:] == ["1.60 x 0.25", "+0.20"]


def test_throughput() -> None:
    cells = [
        ThroughputCell("duramen sync", "kafka", 1000, 100, [2.0, 1.0, 1.0], [0.5]),
        ThroughputCell("duramen os", "kafka", 1000, 100, [0.5], []),
    ]
    row = _row(_text(throughput_table(cells)), "duramen sync")
    assert row[2:6] == ["100", "100", "0.1", "0.50 x 200"]
    assert row[7] == "200"


def test_targets() -> None:
    text = _text(targets_table([at_least("a", 5.0, 4.0, "Kafka", ""), at_least("b", 2.0, 4.0, "Kafka", "")]))
    assert _row(text, "│ a ")[3] == "met"
    assert _row(text, "│ b ")[3] == "50 % short"
    assert _row(_text(targets_table([not_measured("c", "much", "no peer")])), "│ c ")[3] == "not measured: no peer"
