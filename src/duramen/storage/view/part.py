"""A part of a store of views: rows under a prefix of its own, as if there were nothing else."""

from collections.abc import Iterable, Iterator

from duramen.base.ports import ViewStore

__all__ = ["ViewPart"]


class ViewPart:
    """A ViewStore in another; `prefix` is no other part's, nor the beginning of one."""

    def __init__(self, store: ViewStore, prefix: bytes) -> None:
        self._store = store
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`."""
        return self._store.get(self._prefix + key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `first <= key < end` in order."""
        skipped = len(self._prefix)
        for key, value in self._store.scan(self._prefix + first, self._prefix + end):
            yield key[skipped:], value

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        """Apply the puts, then the deletes, all or none."""
        prefix = self._prefix
        self._store.write([(prefix + key, value) for key, value in puts], [prefix + key for key in deletes])

    def flush(self) -> None:
        """Everything written before this call survives a crash."""
        self._store.flush()

    def clear(self) -> None:
        """Remove everything of this part."""
        end = self._prefix[:-1] + bytes((self._prefix[-1] + 1,))
        self._store.write([], [key for key, _ in self._store.scan(self._prefix, end)])

    def close(self) -> None:
        """The store is closed by whom it belongs to."""
