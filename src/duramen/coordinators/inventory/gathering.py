"""Collects the responses to commands that create tenants, namespaces and topics."""

from collections.abc import Sequence

from duramen.base.errors import DuramenError
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.coordinators.inventory.shards import Done
from duramen.inventory.machine import Created, CreateTopics
from duramen.inventory.names import NamedProblem
from duramen.inventory.packing import unpack_names

__all__ = ["GatheredNames"]


class GatheredNames:
    """The outcome of the creation of many names: calls `done` with `CreatedNames` after that many responses."""

    def __init__(self, left: int, done: Done, problems: Sequence[NamedProblem] = (), existing: int = 0) -> None:
        self._left = left
        self._done = done
        self._problems = list(problems)
        self._created, self._existing, self._aliases = 0, existing, list[bytes]()
        if not left:
            self._end()

    def one(self, name: str, answer: tuple[object, bool] | DuramenError) -> None:
        """The response about one name."""
        if isinstance(answer, DuramenError):
            self._problems.append(NamedProblem(name, answer))
        elif answer[1]:
            self._created += 1
        else:
            self._existing += 1
        self._answered()

    def several(self, command: CreateTopics, answer: Created | DuramenError) -> None:
        """The response about names of one shard."""
        if isinstance(answer, DuramenError):
            names = (name for block in command.blocks for name in unpack_names(block.body))
            self._problems += [NamedProblem(name.decode(), answer) for name in names]
        else:
            self._created += answer.new
            self._existing += answer.existing
            self._aliases += answer.aliases
        self._answered()

    def _answered(self) -> None:
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        self._done(CreatedNames(self._created, self._existing, self._problems, self._aliases))
