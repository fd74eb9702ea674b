"""The usage of a queue space: totals are unknown while those of a shard are, and lack those of lost shards."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import StateDamaged
from duramen.doors.queues import operations
from duramen.doors.queues.types import UsageQuery
from duramen.queues.totals import ShardTotals
from duramen.service.led_queues import FoundTotals

TOTALS = st.builds(ShardTotals, st.integers(0, 9), st.integers(0, 9))
LOST = StateDamaged("its rows are lost")


@given(st.lists(st.none() | st.just(LOST) | TOTALS, min_size=1, max_size=4), st.integers(-1, 5))
def test_totals_are_unknown_while_a_shard_is(given: list[ShardTotals | StateDamaged | None], limit: int) -> None:
    shards = [one if isinstance(one, ShardTotals) else None for one in given]
    lost: Mapping[int, StateDamaged] = {at: one for at, one in enumerate(given) if isinstance(one, StateDamaged)}

    def totals(_: object, done: Callable[[FoundTotals], None]) -> None:
        done(FoundTotals(shards, lost))

    space: Any = SimpleNamespace(owned=False, shard_limits=(limit, -1))
    requests: Any = SimpleNamespace(shards=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "LedQueues", lambda *_: SimpleNamespace(totals=totals))
        asked = operations.QueueOperations(SimpleNamespace(), requests, space, set(), "/")  # type: ignore[arg-type]
        usage = asyncio.run(asked.usage(UsageQuery()))
    known = [one for one in shards if one is not None]
    whole = None not in given
    assert usage.entries == (sum(one.entries for one in known) if whole else None)
    assert usage.bytes == (sum(one.bytes for one in known) if whole else None)
    assert [(one.entries, one.bytes) for one in usage.shards] == [one or (None, None) for one in shards]
    assert (usage.max_entries, usage.max_bytes) == (limit if limit >= 0 else None, None)
    assert [(one.shard, one.reason) for one in usage.missing_shards] == [(shard, str(LOST)) for shard in lost]
