"""What Kafka makes of the entries of a list, also of empty ones."""

import pytest

from duramen.base.settings import entries, named


@pytest.mark.parametrize(
    ("value", "whole", "change"),
    [
        ("a, b", ["a", "b"], ["a", "b"]), ("", [], [""]), (" ", [], [""]), ("a,", ["a", ""], ["a"]),
        ("a,,", ["a", "", ""], ["a"]), (",a", ["", "a"], ["", "a"]), (",", ["", ""], [""]),
    ],
)  # fmt: skip
def test_empty_entries(value: str, whole: list[str], change: list[str]) -> None:
    assert entries(value) == whole
    assert named(value) == change
