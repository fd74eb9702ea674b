"""What may be applied of a partition: what is known to be committed, and on disk."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from duramen.broker.partition import Partition
from duramen.storage.log.log import Log
from duramen.storage.store import Store

ALONE = None
MEMBER = object()


@pytest.mark.parametrize(
    ("role", "replicated", "high_watermark", "expected"),
    [
        (ALONE, None, 9, 9),
        (MEMBER, None, 9, 3),  # no replica says yet what is committed: what is behind may be cut
        (MEMBER, object(), 7, 7),
        (MEMBER, object(), 12, 9),
    ],
)
def test_nothing_is_committed_before_the_replica_says_so(
    role: Any, replicated: Any, high_watermark: int, expected: int
) -> None:
    log = SimpleNamespace(start_offset=3, synced_offset=9, high_watermark=high_watermark, replicated=replicated)
    nobody = cast("Any", None)
    partition = Partition(nobody, 0, cast("Log", log), cast("Store", nobody), nobody, role)
    assert partition.committed_offset() == expected
