"""Decisions of storage: pure functions from known state to required actions."""
