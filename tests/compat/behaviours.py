"""The one list of behaviours that every client is led through."""

from typing import Final

from tests.compat.administering import ADMINISTERING
from tests.compat.grouping import GROUPING
from tests.compat.producing import PRODUCING
from tests.compat.transacting import TRANSACTING

__all__ = ["BEHAVIOURS"]

BEHAVIOURS: Final = (*PRODUCING, *TRANSACTING, *GROUPING, *ADMINISTERING)
