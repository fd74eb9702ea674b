"""The settings of a node as configs: those that are the defaults of streams are changed while it runs.

What was changed, of this node or of every node, is in the metadata and comes before what the node was started with.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from duramen.base.catalogue import BROKER
from duramen.base.errors import ConfigInvalid, DuramenError, RequestInvalid, SettingInvalid
from duramen.base.settings import Settings, Value, check, nearest
from duramen.broker.changes import Changes, settled
from duramen.broker.configs import Changed, ConfigEntry, broker_entries
from duramen.broker.control.requests import ConfigureNode

__all__ = ["NodeConfigs"]

_DYNAMIC: Final = frozenset(name for name, setting in BROKER.items() if setting.dynamic)


class NodeConfigs:
    """The settings in force and where each comes from."""

    def __init__(self, settings: Settings, changes: Changes, node_id: int) -> None:
        self._settings = settings
        self._changes = changes
        self._node_id = node_id

    @property
    def changed(self) -> Changed:
        """What was changed while the node ran; a setting that this version does not know, or change, is left out."""
        return Changed(self._values(self._node_id), self._values(None))

    def _values(self, node_id: int | None) -> Mapping[str, Value]:
        config = self._changes.state.node_configs.get(node_id, {})
        return {name: check(BROKER[name], text) for name, text in config.items() if name in _DYNAMIC}

    def entries(self) -> list[ConfigEntry]:
        """Every setting of this node."""
        return broker_entries(self._settings, self.changed)

    def entries_of_all(self) -> Sequence[ConfigEntry]:
        """What was changed of every node."""
        return [
            ConfigEntry(BROKER[name], value, "dynamic-default", ((name, value, "dynamic-default"),))
            for name, value in self._values(None).items()
        ]

    def value(self, name: str, *, of_all: bool) -> Value:
        """The value in force of a setting, of this node or where nothing is said of it alone. Raises RequestInvalid."""
        _check_name(name)
        own, every = self.changed
        if name in own and not of_all:
            return own[name]
        return every.get(name, self._settings[name])

    def check(self, changes: Mapping[str, str | None]) -> None:
        """Raise RequestInvalid for what is not changed while a node runs, ConfigInvalid for a value that is wrong."""
        for name, text in changes.items():
            _check_name(name)
            try:
                if text is not None:
                    check(BROKER[name], text)
            except SettingInvalid as error:
                raise ConfigInvalid(str(error)) from None

    def change(
        self,
        changes: Mapping[str, str | None],
        done: Callable[[DuramenError | None], None],
        *,
        of_all: bool,
        whole: bool,
    ) -> None:
        """Change settings of this node or of every one; None takes a change back, `whole` all that are not named.

        `done` once that is durable; streams follow. Raises as `check`.
        """
        self.check(changes)
        node_id = None if of_all else self._node_id
        self._changes.ask(ConfigureNode(node_id, changes, whole=whole), settled(done))


def _check_name(name: str) -> None:
    if name not in BROKER:
        raise RequestInvalid(f"{name} is not a setting of nodes{nearest(name, BROKER)}")
    if name not in _DYNAMIC:
        raise RequestInvalid(f"a node reads its settings when it starts: {name} cannot be changed before then")
