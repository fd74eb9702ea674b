import pytest

from duramen.demo.report import DemoFigures, bytes_text, lines, listing, seconds_text

FIGURES = DemoFigures(
    flights=336_776,
    body_bytes=101_000_000,
    window=2000,
    latencies_s=[0.001 * number for number in range(1, 1001)],
    publish_s=8.0,
    read_s=9.0,
    recovery_s=1.5,
    log_bytes=122_000_000,
    disk_bytes=257_000_000,
    spark_s=20.0,
    total_s=57.3,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (118_400_000, "118 MB"), (2.5e9, "2.5 GB"), (3e12, "3000 GB")],
)
def test_bytes(count: float, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.0123, "12 ms"), (1.234, "1.23 s"), (83.4, "83 s")])
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_the_report_says_what_was_measured() -> None:
    found = dict(lines(FIGURES))
    assert found["published"] == "42,097 flights/s (8.00 s), each acknowledged once on disk"
    assert found["acknowledged"] == "p50 500 ms, p99 990 ms, longest 1.00 s (through the crash),"
    assert found["crash"] == "first acknowledgement 1.50 s after the kill -9"
    assert found["on disk"] == "122 MB of records for 101 MB of JSON; 257 MB with the WAL"
    assert found["Spark"] == "16,839 flights/s (20 s), its start not counted"


def test_its_lines_fit_a_terminal() -> None:
    found = listing(lines(FIGURES))
    assert max(map(len, found)) <= 77
    assert len({line.index(words) for line, (_, words) in zip(found, lines(FIGURES), strict=True)}) == 1
