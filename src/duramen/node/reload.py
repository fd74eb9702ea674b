"""Reloads a node's settings while it runs: applies those that may change, and reports those that may not."""

import logging
from collections.abc import Callable, Sequence

from duramen.base.errors import DuramenError
from duramen.base.settings import Settings, config_text
from duramen.node.listeners import contradictions
from duramen.node.logs import configure
from duramen.node.node import NodeAssembly

__all__ = ["Load", "reload"]

Load = Callable[[], Settings]
"""Reads the settings as at the start: the same options and environment, the present file."""

_log = logging.getLogger("duramen.node")


def reload(node: NodeAssembly, load: Load) -> None:
    """Apply the changeable settings from their present values. On an error none is applied; it is logged."""
    try:
        new = load()
    except DuramenError as error:
        _refuse([error])
        return
    faults = list(contradictions(new))
    if faults:
        _refuse(faults)
    else:
        _take(node, new)


def _refuse(faults: Sequence[DuramenError]) -> None:
    for fault in faults:
        _log.error("the settings are not reloaded, and stay as they are: %s [%s]", fault, fault.id)


def _take(node: NodeAssembly, new: Settings) -> None:
    running = node.settings
    changed = running.changed(new)
    taken = {name: (running[name], new[name]) for name in changed if running.setting(name).reloadable}
    left = [name for name in changed if name not in taken]
    overridden = node.reload(new)
    if any(name.startswith("logging.") for name in taken):
        configure(new.text("logging.level"), new.text("logging.format"))
    for warning in new.warnings:
        _log.warning("%s", warning)
    shown = {name: [config_text(value) for value in values] for name, values in taken.items()}
    if shown:
        said = ", ".join(f"{name} from {before or '(empty)'} to {after or '(empty)'}"
                         for name, (before, after) in shown.items())  # fmt: skip
        _log.info("settings reloaded: %s", said, extra={"fields": {"changed": shown, "restart": left}})
    elif not left:
        _log.info("settings reloaded: nothing has changed")
    hidden = [name for name in taken if name in overridden]
    if hidden:
        _log.warning("a value that was set while nodes ran stays in force for %s", ", ".join(hidden))
    if left:
        # Without their values: an address may include a password.
        _log.warning(
            "these settings have changed, and need a restart of the node: %s", ", ".join(left),
            extra={"fields": {"restart": left}},
        )  # fmt: skip
