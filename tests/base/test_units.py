"""Sizes and times as people write them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duramen.base.units import format_bytes, format_ms, parse_bytes, parse_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("-1", -1), ("1KiB", 1024), ("1.5 MiB", 1572864), ("2 GB", 2_000_000_000), (" 7 ", 7), ("1k", 1000)],
)
def test_bytes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", 5), ("-1", -1), ("1.5s", 1500), ("2 m", 120_000), ("1h", 3_600_000), ("7d", 604_800_000)],
)
def test_times(text: str, expected: int) -> None:
    assert parse_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "1 x", "1e3", "--1", "1 2", "MiB", "½", "٣", "9" * 400, "9" * 400 + ".5", "9" * 5000]
)
def test_what_is_neither(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of bytes"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="expected a number of milliseconds"):
        parse_ms(text)


@given(st.integers())
def test_whole_numbers_are_exact(number: int) -> None:
    assert parse_bytes(str(number)) == parse_ms(str(number)) == number


@given(st.floats(0, 1e12))
def test_no_duration_is_written_with_an_exponent(duration_ms: float) -> None:
    assert "e+" not in format_ms(duration_ms)


@given(st.integers(0, 1 << 60))
@example(1_048_051_712)
def test_what_is_written_for_people_is_near(count: int) -> None:
    assert abs(parse_bytes(format_bytes(count)) - count) <= count * 0.01


def test_written_for_people() -> None:
    assert [format_bytes(count) for count in (0, 1023, 1536, 1 << 30)] == ["0 B", "1023 B", "1.5 KiB", "1 GiB"]
    assert [format_ms(ms) for ms in (0.214, 12_500, 90_000)] == ["0.214 ms", "12.5 s", "1.5 min"]
