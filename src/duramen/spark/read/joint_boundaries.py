"""The end of a read over several streams, some from tables: at one place in the order of commits. Pure.

A table ends where it has whole transactions, which suffices for a query of its stream alone. For a transaction over
several streams the markers elsewhere matter too, whether the log still has them or only the rows of a table show them:
together they are cut like those of a log (`transaction_boundaries`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from duramen.base.errors import TableAhead
from duramen.client import TopicPartition
from duramen.client.transaction_states import EndedAt, MarkedUpTo
from duramen.spark.read.plan import limited
from duramen.spark.read.transaction_boundaries import cut

__all__ = ["Cold", "ahead_of_others", "cut_jointly", "together"]

_T = TypeVar("_T")
_MORE: Final = 4
_NOBODY: Final = -1
"""An unused producer id."""

Places = Mapping[TopicPartition, int]


class Cold(NamedTuple):
    """The state of partitions that are read from tables.

    `fixed` are ends that are used unchanged: of streams that are read alone, or with too few known transactions.
    `ended` are the commit markers that the log no longer has, in order. `jumps` are the ends of tables with one row per
    key, which are read completely or not at all. Rows of their transactions may be gone: `newest` is, by stream, the
    last commit sequence of a transaction that such a table has had.
    """

    fixed: Places
    ended: Mapping[TopicPartition, list[EndedAt]]
    jumps: Places
    newest: Mapping[str, int]

    def ahead(self, ends: Places) -> list[str]:
        """The streams with tables that are not read before these ends, because they have more than the others."""
        return sorted({at.topic for at, jump in self.jumps.items() if ends[at] < jump})


def ahead_of_others(stream: str) -> TableAhead:
    """The error for such a table."""
    return TableAhead(
        f"the table of {stream} has transactions that are not wholly in the other streams yet: read again later, or"
        " read the streams one by one"
    )


def cut_jointly(
    begin: Places, end: Places, marked: Mapping[TopicPartition, MarkedUpTo], cold: Cold, most: int | None = None
) -> dict[TopicPartition, int]:
    """The farthest sound cut from `begin` to `end`; with `most`, of about that many offsets.

    It has more of them if there is no other way to advance. `marked` is the state of the log.
    """
    free = [at for at in end if at not in cold.fixed]
    begin, end, marked = _of(begin, free), _of(end, free), _of(marked, free)
    if not cold.ended and not cold.jumps:
        return {**cold.fixed, **(cut(begin, end, marked, most) if free else {})}
    end |= {at: max(end[at], jump) for at, jump in cold.jumps.items()}
    while True:
        wanted = end if most is None else limited(begin, end, most)
        wanted = {at: max(offset, cold.jumps.get(at, offset)) for at, offset in wanted.items()}
        known = together(marked, cold.ended, begin, wanted, max(cold.newest.values(), default=-1))
        known = _with_unknown(known, cold, begin)
        found = _landed(begin, wanted, known, cold.jumps)
        if most is None or wanted == end or any(found[at] > begin[at] for at in found):
            return {**cold.fixed, **found}
        most *= _MORE


def together(
    marked: Mapping[TopicPartition, MarkedUpTo],
    ended: Mapping[TopicPartition, Collection[EndedAt]],
    begin: Places,
    upto: Places,
    unsure: int = -1,
) -> dict[TopicPartition, MarkedUpTo]:
    """The transactions of the log, with those earlier markers of tables that matter for an end at or before `upto`.

    A transaction without a marker before that end cannot be split there, so transactions that were decided after all
    that have one are left out. Up to the sequence `unsure` that is unknown for all.
    """
    inside = (
        one.sequence
        for at, offset in upto.items()
        for one in (*ended.get(at, ()), *marked[at].ended)
        if begin[at] <= one.offset < offset
    )
    newest = max([unsure, *inside])
    found = dict(marked)
    for at, cold in ended.items():
        first = marked[at].ended[0].offset if marked[at].ended else None
        kept = [
            one for one in cold
            if (first is None or one.offset < first) and (one.offset < upto[at] or one.sequence <= newest)
        ]  # fmt: skip
        found[at] = marked[at]._replace(ended=[*kept, *marked[at].ended])
    return found


def _with_unknown(
    known: Mapping[TopicPartition, MarkedUpTo], cold: Cold, begin: Places
) -> dict[TopicPartition, MarkedUpTo]:
    """The known transactions, with a marker of each one that tables with missing rows may have had.

    These are all transactions of other streams that were decided by then. One marker anywhere before a table's end
    suffices.
    """
    added: dict[TopicPartition, MarkedUpTo] = {}
    for topic, newest in cold.newest.items():
        within = min((at for at, jump in cold.jumps.items() if at.topic == topic and begin[at] < jump), default=None)
        if within is not None:
            others = {
                one.sequence
                for at, found in known.items()
                for one in found.ended
                if at.topic != topic and one.commit and 0 <= one.sequence <= newest and one.offset >= begin[at]
            }
            # Their producer is unknown, and must not match one with an open transaction there.
            unknown = [EndedAt(begin[within], _NOBODY, begin[within], sequence, commit=True) for sequence in others]
            added[within] = known[within]._replace(ended=[*unknown, *known[within].ended])
    return {**known, **added}


def _landed(
    begin: Places, wanted: Places, marked: Mapping[TopicPartition, MarkedUpTo], jumps: Places
) -> dict[TopicPartition, int]:
    """The farthest sound cut that includes jumps over tables completely, or omits them."""
    found = cut(begin, wanted, marked)
    while short := {at.topic for at, jump in jumps.items() if begin[at] < jump and found[at] < jump}:
        found = cut(begin, {at: begin[at] if at.topic in short else offset for at, offset in found.items()}, marked)
        jumps = {at: jump for at, jump in jumps.items() if at.topic not in short}
    return found


def _of(values: Mapping[TopicPartition, _T], ats: Iterable[TopicPartition]) -> dict[TopicPartition, _T]:
    return {at: values[at] for at in ats}
