"""Steps about the offsets that groups commit."""

from typing import Any

from tests.differential.drawing import Drawing, Making, Step

from duramen.codec.kafka.versions import ApiKey

__all__ = ["Deleting", "offsets"]


def offsets(draw: Drawing) -> list[dict[str, Any]]:
    """Offsets to commit."""
    partition = {
        "partition_index": draw.partition(), "committed_offset": draw.number(100),
        "committed_metadata": "m" if draw.often() else draw.one(None, "x" * 5000),
    }  # fmt: skip
    return [{"name": draw.name(), "partitions": [partition]}]


class Deleting:
    """Draws the deletion of offsets."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [(4, self._delete_offsets)]

    def _delete_offsets(self) -> Step:
        group = self._draw.group("", "g3", "nobody's")
        topics = [
            {"name": self._draw.name(), "partitions": [{"partition_index": self._draw.partition()} for _ in range(2)]}
            for _ in range(1 if self._draw.often() else self._draw.one(0, 2))
        ]
        wish = {"group_id": group, "topics": topics}
        return Step(ApiKey.OFFSET_DELETE, self._draw.version(ApiKey.OFFSET_DELETE), wish)
