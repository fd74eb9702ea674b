"""Damage to the files of views: pages and checkpoints are lost, truncated, replaced by older ones, or corrupted.

No data may be lost with them, because the log has everything that a view is built from.
"""

import random
from typing import Final

from duramen.broker.views.files import VIEWS_DIRECTORY
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.disk_damage import Decayed
from duramen.sim.machine.stages import DAMAGES

__all__ = ["ViewDamage"]

_AT_REST: Final = 0.5  # how likely files are damaged while no process runs, in a run in which they are at all
_RUNS: Final = 0.6


class ViewDamage:
    """Damages files of views, in some runs."""

    def __init__(self, disk: MemoryFileSystem, chance: random.Random) -> None:
        self._disk = disk
        self._chance = chance
        self._damages = chance.random() < _RUNS
        self._older: dict[str, bytes] = {}

    def at_rest(self) -> Decayed | None:
        """No process runs: perhaps a file is damaged."""
        found = None
        if self._damages and self._chance.random() < _AT_REST:
            found = self._damage("")
        # A page of another view would pass for this one's: only checkpoints say whose they are.
        for path in self._paths():
            if "/view." in path and (path not in self._older or self._chance.random() < 0.3):
                self._older[path] = self._disk.content(path)
        return found

    def at_work(self, damage: str) -> Decayed | None:
        """A process runs: a file is damaged, in the given way if there is one."""
        return self._damage(damage)

    def _damage(self, damage: str) -> Decayed | None:
        damage = damage or self._chance.choice(DAMAGES)
        paths = [path for path in self._paths() if self._disk.content(path)]
        if damage == "older copy":
            paths = [path for path in paths if self._older.get(path, b"") not in (b"", self._disk.content(path))]
        if not paths:
            return None
        path = self._chance.choice(paths)
        content = self._disk.content(path)
        place = self._chance.randrange(len(content))
        if damage == "bit flip":
            self._disk.corrupt(path, place, 1 << self._chance.randrange(8))
        elif damage == "older copy":
            self._disk.replace(path, self._older[path])
        elif self._chance.random() < 0.5:
            self._disk.lose(path)
        else:
            self._disk.replace(path, content[:place])
        return Decayed(damage, path, place)

    def _paths(self) -> list[str]:
        return [path for path in self._disk.paths() if path.startswith(f"{VIEWS_DIRECTORY}/")]
