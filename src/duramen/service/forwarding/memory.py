"""A memory budget for clients' requests that wait: a fixed number of bytes together."""

__all__ = ["Room"]


class Room:
    """Counts bytes that are held."""

    __slots__ = ("_held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """How many are held now."""
        return self._held_bytes

    def take(self, size: int, *, alone: bool = False) -> bool:
        """Hold so many more; False where there is no room, and nothing is held.

        With `alone` more than there is room for is taken, too, where nothing else is held.
        """
        if self._held_bytes + size > self.limit_bytes and not (alone and not self._held_bytes):
            return False
        self._held_bytes += size
        return True

    def give(self, size: int) -> None:
        """Hold so many no more."""
        self._held_bytes -= size
