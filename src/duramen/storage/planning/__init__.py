"""Deciding what storage does: pure functions from what is known to what has to happen."""
