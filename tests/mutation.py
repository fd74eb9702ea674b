"""Bytes made wrong on purpose, the same way for the same seed."""

import random

__all__ = ["mutate"]


def mutate(data: bytearray, chance: random.Random) -> None:
    """Change, cut out or put in a few bytes."""
    place = chance.randint(0, len(data))
    match chance.randrange(4):
        case 0 if place < len(data):
            data[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        case 1:
            del data[place : place + chance.randint(1, 8)]
        case 2:
            data[place:place] = chance.randbytes(chance.randint(1, 8))
        case _:
            data[place : place + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"))
