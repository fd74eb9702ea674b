"""How many examples a property test tries: few in `make test`, all of them in `make test-long`."""

from typing import Final

from hypothesis import settings

SEARCH: Final = "search"
"""The profile of `make test-long`."""

_SHORTER: Final = 4
_FEWEST: Final = 5


def examples(count: int) -> int:
    """`count` in `make test-long`; a quarter in `make test`, but not fewer than five."""
    if settings.get_current_profile_name() == SEARCH:
        return count
    return min(count, max(_FEWEST, count // _SHORTER))
