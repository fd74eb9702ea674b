"""Places in a log, as people write them."""

import pytest

from duramen.base.positions import At, Last, Position, Since, parse_position

_NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", "start"),
        ("earliest", "start"),
        ("end", "end"),
        ("latest", "end"),
        ("0", At(0)),
        ("17", At(17)),
        ("-5", Last(5)),
        ("-0", Last(0)),
        ("@1700000000123", Since(1_700_000_000_123)),
        ("@0", Since(0)),
        ("@86400000", Since(86_400_000)),
        ("@20130101", Since(1_356_998_400_000)),
        ("@-30s", Since(_NOW_MS - 30_000)),
        ("@2023-11-14T22:13:20Z", Since(_NOW_MS)),
        ("@2023-11-14T23:13:20+01:00", Since(_NOW_MS)),
        ("@2023-11-14 22:13:20.5", Since(_NOW_MS + 500)),
        ("@2013-01-01", Since(1_356_998_400_000)),
    ],
)
def test_places(text: str, position: Position) -> None:
    assert parse_position(text, _NOW_MS) == position


@pytest.mark.parametrize(
    "text",
    ["", "begin", "1.5", "--5", "+5", "٣", "@", "@yesterday", "@-", "@--30s", "@1969-12-31", "9" * 30, "@" + "9" * 30],
)
def test_what_is_no_place_says_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match="it must be start, end"):
        parse_position(text, _NOW_MS)
