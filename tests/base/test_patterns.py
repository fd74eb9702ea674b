"""Regular expressions of subscriptions: RE2's syntax, whole names or parts, linear time, bad ones refused."""

import pytest

from duramen.base.errors import PatternInvalid
from duramen.base.patterns import matching, pattern_of

NAMES = ["a", "aa", "b", "topic-1", "topic-2", "topic-10", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a", {"a"}),
        ("a+", {"a", "aa"}),
        ("topic-[0-9]", {"topic-1", "topic-2"}),
        ("^topic-.*$", {"topic-1", "topic-2", "topic-10"}),
        (".*", set(NAMES)),
        ("(?i)TOPIC-1", {"topic-1"}),
        ("x", set()),
        ("", set()),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, found: set[str]) -> None:
    assert matching(pattern, NAMES) == found


@pytest.mark.parametrize(
    ("pattern", "found"), [("-1", {"topic-1", "topic-10"}), ("^a", {"a", "aa"}), ("-1$", {"topic-1"}), ("", set(NAMES))]
)
def test_a_pattern_matches_parts_of_names(pattern: str, found: set[str]) -> None:
    matches = pattern_of(pattern, whole=False)
    assert {name for name in NAMES if matches(name)} == found


@pytest.mark.parametrize("pattern", ["a(b", "[", "a{1001}", "(?P<x", "(?=a)", "\\1", "(" * 20000])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternInvalid, match="not a regular expression"):
        pattern_of(pattern)


def test_a_pattern_that_takes_others_for_ever_is_linear() -> None:
    assert not pattern_of("(a*)*b")("a" * 30_000)
