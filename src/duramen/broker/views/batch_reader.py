"""Reads whole batches of a log, from memory or disk. Nothing here waits."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from duramen.base.errors import DuramenError
from duramen.storage.log.log import Log
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["ReadResult", "read_batches"]

ReadResult: TypeAlias = bytes | DuramenError | OSError

_READ_BYTES: Final = 1 << 20


def read_batches(
    store: Store, log: Log, offset: int, take: Callable[[ReadResult], None], size: int = _READ_BYTES
) -> None:
    """Whole batches below the high watermark, about `size` bytes from the one that holds `offset` on; b"": none yet."""
    try:
        plan = log.plan_read(offset, size)
    except DuramenError as error:
        take(error)
        return
    if plan is None:
        take(b"")
    elif isinstance(plan, Blocked):
        store.unblock(plan, partial(_unblocked, store, log, offset, take, size))
    else:
        read_slice(store, plan, take)


def _unblocked(
    store: Store, log: Log, offset: int, take: Callable[[ReadResult], None], size: int, error: BaseException | None
) -> None:
    if error is None:
        read_batches(store, log, offset, take, size)
    else:
        take(error if isinstance(error, OSError) else OSError(str(error)))
