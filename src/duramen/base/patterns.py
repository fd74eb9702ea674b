"""Regular expressions of subscriptions: RE2's syntax, matched in linear time; over whole names in KIP-848.

https://github.com/google/re2/wiki/Syntax
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from duramen.base.errors import PatternInvalid

__all__ = ["matching", "pattern_of"]

_MOST_BYTES: Final = 1024 * 1024  # what one compiled expression may take
_MOST_PATTERNS: Final = 128


@lru_cache(_MOST_PATTERNS)
def pattern_of(text: str, *, whole: bool = True) -> Callable[[str], bool]:
    """Whether a name, as a whole or any part of it, matches the expression. Raises PatternInvalid."""
    import re2  # 4 ms of a node's start, and few groups subscribe by pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        why = error.args[0] if error.args else "it cannot be read"
        said = why.decode(errors="replace") if isinstance(why, bytes) else why
        raise PatternInvalid(f"{text!r} is no regular expression as RE2 knows them: {said}") from None
    match = compiled.fullmatch if whole else compiled.search
    return lambda name: match(name) is not None


def matching(text: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match. Raises PatternInvalid."""
    matches = pattern_of(text)
    return frozenset(name for name in names if matches(name))
