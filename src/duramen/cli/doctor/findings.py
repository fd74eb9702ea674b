"""A finding of `duramen doctor`: what was checked, its state, and advice."""

from typing import Literal, NamedTuple

__all__ = ["DoctorFinding", "State"]

State = Literal["ok", "note", "missing"]


class DoctorFinding(NamedTuple):
    """A checked item. `missing`: a command cannot work without it; `advice` is the remedy."""

    name: str
    state: State
    found: str
    advice: str = ""
