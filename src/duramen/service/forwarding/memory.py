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
        """Reserve this many bytes; False without reserving if there is no room.

        With `alone` a larger amount is accepted too if nothing else is reserved.
        """
        if self._held_bytes + size > self.limit_bytes and not (alone and not self._held_bytes):
            return False
        self._held_bytes += size
        return True

    def give(self, size: int) -> None:
        """Release this many bytes."""
        self._held_bytes -= size
