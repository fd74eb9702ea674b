"""Reserved prefixes of queues' topics: such a topic starts with the prefix of its space, and no stream may. Pure."""

from collections.abc import Mapping

from duramen.base.catalogue.keyed import LIVE_TOPIC
from duramen.base.catalogue.queues import TOPIC_PREFIX
from duramen.base.errors import ConfigInvalid, NameInvalid
from duramen.metadata.state import ControllerState
from duramen.metadata.tenant_names import check_tenants

__all__ = ["check_prefixes"]


def check_prefixes(state: ControllerState, name: str, config: Mapping[str, str]) -> None:
    """Raise NameInvalid if a stream would hide a queue's topic, ConfigInvalid if its queues would hide a stream.

    `config` is the config of the stream of that name.
    """
    check_tenants(state, name, config)
    prefix = config.get(TOPIC_PREFIX, "")
    for other, space in state.topic_prefixes.items():
        if space == name:
            continue
        if name.startswith(other):
            raise NameInvalid(
                f"the name {name} is one of the topics of the queue space {space}, whose {TOPIC_PREFIX} is {other}"
            )
        shown = config.get(LIVE_TOPIC, "")
        if shown.startswith(other):
            raise ConfigInvalid(f"{LIVE_TOPIC}={shown} is one of the topics of the queue space {space}")
        if prefix and (other.startswith(prefix) or prefix.startswith(other)):
            raise ConfigInvalid(
                f"{TOPIC_PREFIX}={prefix} of {name} would name topics of the queue space {space}, whose prefix is"
                f" {other}"
            )
    known = state.streams.get(name)
    if not prefix or (known is not None and known.config.get(TOPIC_PREFIX, "") == prefix):
        return
    names = (shown for one in state.streams.values() for shown in (one.name, one.config.get(LIVE_TOPIC, "")))
    hidden = next((one for one in (name, *names) if one.startswith(prefix)), None)
    if hidden is not None:
        raise ConfigInvalid(f"{TOPIC_PREFIX}={prefix} of {name} would hide the topic {hidden}")
