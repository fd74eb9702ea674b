"""The settings of the inventory of topics."""

from typing import Final

from duramen.base.settings import Setting

__all__ = ["DEFAULT_ACCOUNT", "NODE_SETTINGS"]

DEFAULT_ACCOUNT: Final = "default"
_MOST_SHARDS: Final = 1024

# fmt: off
NODE_SETTINGS: Final = (
    Setting("inventory.account", "text", DEFAULT_ACCOUNT,
            "The account whose tenants are meant where a request names none."),
    Setting("inventory.shards", "integer", 4,
            "How many shards the inventory of topics has. It counts when the first tenant is made; the number stays.",
            minimum=1, maximum=_MOST_SHARDS),
    Setting("inventory.queue.shards", "integer", 16,
            "How many shards hold the records of the inventory's topics. It counts when the first tenant is made; the "
            "number stays.",
            minimum=1, maximum=_MOST_SHARDS),
)
# fmt: on
