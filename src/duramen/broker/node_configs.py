"""The settings of a node as configs; stream defaults can change while it runs.

Changes for this node or for every node are in the metadata and override the settings of the start. Configs that only
Kafka's brokers have are stored there too, without effect.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import ConfigInvalid, DuramenError, RequestInvalid, SettingInvalid
from duramen.base.kafka_configs import KAFKA_BROKER_CONFIGS
from duramen.base.settings import Setting, Settings, Value, check, nearest
from duramen.base.unused_configs import LONGEST_VALUE, refusal_of, unused_setting
from duramen.broker.changes import Changes, settled
from duramen.broker.control.requests import ConfigureNode
from duramen.broker.stream_configs import ChangedDefaults, ConfigEntry, Synonym, broker_entries

__all__ = ["NodeConfigs", "setting_of"]

_SECRET: Final = re.compile("://[^/@]*@")
_DYNAMIC: Final = frozenset(name for name, setting in BROKER.items() if setting.dynamic)


class NodeConfigs:
    """The settings in force and where each comes from."""

    def __init__(self, settings: Settings, changes: Changes, node_id: int, report: Callable[[str], None]) -> None:
        """`report` gets messages for operators."""
        self._settings = settings
        self._changes = changes
        self._node_id = node_id
        self._report = report

    @property
    def changed(self) -> ChangedDefaults:
        """Changes made while the node ran; unknown settings are omitted."""
        return ChangedDefaults(self._values(self._node_id), self._values(None))

    def _values(self, node_id: int | None) -> Mapping[str, Value]:
        config = self._changes.state.node_configs.get(node_id, {})
        return {name: check(BROKER[name], text) for name, text in config.items() if name in _DYNAMIC}

    def _unused(self, node_id: int | None) -> dict[str, tuple[Setting, Value]]:
        """Configs set for this node, or all nodes, that no node has."""
        found: dict[str, tuple[Setting, Value]] = {}
        for name, text in self._changes.state.node_configs.get(node_id, {}).items():
            setting = unused_setting(name)
            if setting is not None:
                with contextlib.suppress(SettingInvalid):  # another version may know another type
                    found[name] = setting, check(setting, text)
        return found

    def entries(self) -> list[ConfigEntry]:
        """Every setting of this node, and configs set for it that no node has."""
        own, every = self._unused(self._node_id), self._unused(None)
        unused = []
        for name, (setting, value) in {**every, **own}.items():
            layers: list[Synonym] = [(name, own[name][1], "dynamic-broker")] if name in own else []
            if name in every:
                layers.append((name, every[name][1], "dynamic-default"))
            unused.append(ConfigEntry(setting, value, layers[0][2], tuple(layers), setting.without_effect))
        return [*broker_entries(self._settings, self.changed), *unused]

    def entries_of_all(self) -> Sequence[ConfigEntry]:
        """The cluster-wide changes."""
        changed = {name: (BROKER[name], value) for name, value in self._values(None).items()} | self._unused(None)
        return [
            ConfigEntry(setting, value, "dynamic-default", ((name, value, "dynamic-default"),), setting.without_effect)
            for name, (setting, value) in changed.items()
        ]

    def value(self, name: str, *, of_all: bool) -> Value:
        """The effective value of a setting: this node's own, or else the cluster's. Raises RequestInvalid."""
        setting = setting_of(name)
        for node_id in (None,) if of_all else (self._node_id, None):
            if name in (values := self._values(node_id)):
                return values[name]
            if name in (unused := self._unused(node_id)):
                return unused[name][1]
        return self._settings[name] if name in BROKER else setting.default

    def check(self, changes: Mapping[str, str | None]) -> None:
        """Raise RequestInvalid for a setting that is fixed while a node runs, ConfigInvalid for an invalid value."""
        for name, text in changes.items():
            setting = setting_of(name)
            try:
                if text is not None:
                    check(setting, text)
            except SettingInvalid as error:
                raise ConfigInvalid(str(error)) from None
            if name not in BROKER and text is not None:
                _check_unused(name, text)

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
        unused = [name for name, text in changes.items() if text is not None and name not in BROKER]

        def changed(error: DuramenError | None) -> None:
            if error is None and unused:
                self._report(f"stored without effect: Duramen has nothing that {', '.join(unused)} configures")
            done(error)

        self._changes.ask(ConfigureNode(node_id, changes, whole=whole), settled(changed))


def _check_unused(name: str, text: str) -> None:
    if len(text) > LONGEST_VALUE:
        raise ConfigInvalid(f"{name}: a value has at most {LONGEST_VALUE} characters, not {len(text)}")
    if _SECRET.search(text):
        raise ConfigInvalid(f"{name}: an address with a password is not kept")


def setting_of(name: str) -> Setting:
    """A setting that may change while a node runs, or a config of Kafka without effect here.

    Raises RequestInvalid.
    """
    if name in BROKER and name not in _DYNAMIC:
        raise RequestInvalid(f"nodes read this setting at the start: {name} cannot be changed before then")
    setting = BROKER.get(name) or unused_setting(name)
    if setting is not None:
        return setting
    why = refusal_of(name)
    if why:
        raise RequestInvalid(f"{name} is not taken: {why}")
    raise RequestInvalid(f"{name} is not a setting of nodes{nearest(name, {**BROKER, **KAFKA_BROKER_CONFIGS})}")
