"""Names of sizes."""

import pytest

from duramen.bench.report.sizes import size_name
from duramen.bench.throughput import bounded_messages


@pytest.mark.parametrize(
    ("count", "name"),
    [(100, "100 B"), (256, "256 B"), (1024, "1 KiB"), (5120, "5 KiB"), (1_000_000, "1 MB"), (2000, "2 kB")],
)
def test_sizes_are_named_in_whole_numbers(count: int, name: str) -> None:
    assert size_name(count) == name


def test_messages_are_bounded_by_their_bytes() -> None:
    assert bounded_messages(100_000, 256, 10**9) == 100_000
    assert bounded_messages(100_000, 1_000_000, 10**9) == 1000
    assert bounded_messages(100_000, 1_000_000, 1) == 1
