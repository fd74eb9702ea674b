"""The consumer group: its members' processes, their progress, and what they have read."""

import asyncio
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final, Self

from duramen.base.errors import DemoFailed
from duramen.demo.member import MemberPartition, MemberProgress, read

__all__ = ["GROUP", "DemoConsumers"]

GROUP: Final = "flights-demo"

_LOOK_S: Final = 0.05
_STOP_S: Final = 10.0


class DemoConsumers:
    """A group of consumers in processes of their own; they end with the `with` block."""

    def __init__(self, kafka: str, stream: str, members: int, log_path: Path) -> None:
        self._log_path = log_path
        self._members: list[tuple[SpawnProcess, Connection]] = []
        self._progress: dict[int, MemberProgress] = {}
        config = {"bootstrap.servers": kafka, "group.id": GROUP, "auto.offset.reset": "earliest"}
        context = multiprocessing.get_context("spawn")
        for number in range(members):
            ours, theirs = context.Pipe()
            arguments = ({**config, "client.id": f"member-{number}"}, stream, str(log_path), theirs)
            process = context.Process(target=read, args=arguments, name=f"member-{number}", daemon=True)
            self._members.append((process, ours))
            process.start()
            theirs.close()

    @property
    def read(self) -> int:
        """How many records have been read, each offset counted once."""
        return sum(self.ends.values())

    @property
    def ends(self) -> dict[int, int]:
        """For each partition the offset behind the last one read."""
        ends: dict[int, int] = {}
        for said in self._progress.values():
            for partition, end in said.ends.items():
                ends[partition] = max(end, ends.get(partition, 0))
        return ends

    async def follow(self) -> None:
        """Keep `read` up to date, until cancelled. Raises DemoFailed where a member has ended."""
        while True:
            for number, (_, connection) in enumerate(self._members):
                try:
                    while connection.poll():
                        self._progress[number] = connection.recv()
                except (EOFError, OSError):
                    raise self._ended() from None
            await asyncio.sleep(_LOOK_S)

    async def join(self, partitions: int, timeout_s: float) -> None:
        """Wait until every partition is a member's, and every member has one. Raises DemoFailed."""
        for _ in range(round(timeout_s / _LOOK_S)):
            if self._joined(partitions):
                return
            await asyncio.sleep(_LOOK_S)
        raise DemoFailed(
            f"the consumers have not become a group in {timeout_s:.0f} s; what they said is in {self._log_path}"
        )

    def _joined(self, partitions: int) -> bool:
        assigned = [said.assigned for said in self._progress.values()]
        return len(assigned) == len(self._members) and all(assigned) and sum(map(len, assigned)) == partitions

    async def reach(self, ends: Sequence[int], timeout_s: float) -> None:
        """Wait until the group has read every partition up to its end. Raises DemoFailed where it does not get on."""
        loop = asyncio.get_running_loop()
        count, since_s = self.read, loop.time()
        while any(self.ends.get(partition, 0) < end for partition, end in enumerate(ends)):
            await asyncio.sleep(_LOOK_S)
            if self.read != count:
                count, since_s = self.read, loop.time()
            elif loop.time() - since_s > timeout_s:
                raise DemoFailed(
                    f"the consumers have read {count} of {sum(ends)} flights and nothing more for {timeout_s:.0f} s;"
                    f" what they said is in {self._log_path}"
                )

    def finish(self) -> list[dict[int, MemberPartition]]:
        """Tell every member to leave; returns what each has read, by partition. Raises DemoFailed."""
        results = []
        try:
            for _, connection in self._members:
                connection.send("leave")
            for _, connection in self._members:
                # What it said of its progress comes before.
                while isinstance(said := connection.recv(), MemberProgress):
                    pass
                results.append(said)
        except (EOFError, OSError):
            raise self._ended() from None
        return results

    def _ended(self) -> DemoFailed:
        return DemoFailed(f"a consumer has ended unasked; what it said is in {self._log_path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _process, connection in self._members:
            connection.close()  # a member that still reads sees that, and leaves
        for process, _connection in self._members:
            process.join(_STOP_S)
            if process.is_alive():
                process.kill()
                process.join()
