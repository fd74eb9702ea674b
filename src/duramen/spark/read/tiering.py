"""The two tiers of a stream with a table: cold records in its files, hot records in the log. Pure.

Offsets mean the same in both. In a range, offsets below the table's end are read from the table and the rest from the
log, so each offset is read exactly once, however far retention and the table's job have progressed.
"""

from typing import Final, Literal, NamedTuple

__all__ = ["TIERS", "Extent", "Range", "Tier", "TieredSpan"]

Tier = Literal["hot", "cold", "all"]
TIERS: Final = ("hot", "cold", "all")


Range = tuple[int, int]
"""Offsets `[first, end)`."""


class TieredSpan(NamedTuple):
    """A span by tiers; an empty range starts at its end. `lost` are the ranges that no tier has."""

    cold: Range
    hot: Range
    lost: tuple[Range, ...]


class Extent(NamedTuple):
    """The bounds of a partition's tiers; `cold` is None if the table has nothing of it yet."""

    tier: Tier
    hot: Range
    cold: Range | None

    def log_first(self) -> "Extent":
        """The extent with as little of the table as possible: only what the log no longer has."""
        if self.tier != "all" or self.cold is None:
            return self
        first, end = self.cold
        return self._replace(cold=(first, min(end, max(first, self.hot[0]))))

    @property
    def earliest(self) -> int:
        """The first offset of this tier."""
        if self.cold is None:
            return self.hot[0]
        return {"hot": self.hot[0], "cold": self.cold[0], "all": min(self.cold[0], self.hot[0])}[self.tier]

    @property
    def latest(self) -> int:
        """The offset after the last."""
        if self.tier == "cold":
            return self.hot[0] if self.cold is None else self.cold[1]
        return self.hot[1]

    def cut(self, first: int, end: int, *, prefer_hot: bool = False) -> TieredSpan:
        """The tiers of `[first, end)`. With `prefer_hot` nothing is cold if the log has all of it."""
        if self.tier == "hot" or (self.tier == "all" and (self.cold is None or (prefer_hot and first >= self.hot[0]))):
            return TieredSpan((first, first), (first, end), ())
        known = self.cold or (end, end)
        if self.tier == "all" and first < known[0] and self.hot[0] < known[0]:
            start = min(max(first, self.hot[0]), end)
            return TieredSpan((first, first), (start, end), ((first, start),) if first < start else ())
        begin = min(max(first, known[0]), end)
        upto = min(max(begin, known[1]), end)
        hot = end if self.tier == "cold" else min(max(upto, self.hot[0]), end)
        lost = tuple(one for one in ((first, begin), (upto, hot)) if one[0] < one[1])
        return TieredSpan((begin, upto), (hot, end), lost)
