"""A finding of `duramen doctor`: what was checked, its state, and advice."""

from typing import Literal, NamedTuple

__all__ = ["DoctorFinding", "State"]

State = Literal["ok", "note", "missing"]


class DoctorFinding(NamedTuple):
    """One thing that was looked at. `missing` is what a command cannot do without; `advice` says what to do."""

    name: str
    state: State
    found: str
    advice: str = ""
