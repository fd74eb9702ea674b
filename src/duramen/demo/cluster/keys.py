"""The key of a flight, from which it is known again, and what stands for the whole of it. Pure."""

from duramen.demo.digest import fingerprint
from duramen.demo.flights import MESSAGE_ID_PREFIX

__all__ = ["flight_fingerprint", "key_of", "number_of"]


def key_of(number: int) -> bytes:
    """The key of a flight, by the number of its row."""
    return f"{MESSAGE_ID_PREFIX}{number}".encode()


def number_of(key: str | bytes | None) -> int:
    """The number of the flight; -1 for what is none of ours."""
    name = key.decode(errors="replace") if isinstance(key, bytes) else key or ""
    digits = name.removeprefix(MESSAGE_ID_PREFIX)
    return int(digits) if digits.isdigit() and digits != name else -1


def flight_fingerprint(number: int, body: bytes) -> bytes:
    """What stands for one flight and its key."""
    return fingerprint(key_of(number), b"", body)
