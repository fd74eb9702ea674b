"""Numbers drawn from a seed where very many are: `Random.randrange` draws the same, and takes three times as long."""

import random

__all__ = ["below"]


def below(chance: random.Random, end: int) -> int:
    """A number from 0 to `end` - 1."""
    bits = end.bit_length()
    drawn = chance.getrandbits(bits)
    while drawn >= end:
        drawn = chance.getrandbits(bits)
    return drawn
