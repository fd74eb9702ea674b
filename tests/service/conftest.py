"""A broker on doubles for each test."""

from tests.manual_brokers import any_hand, hand, synced

__all__ = ["any_hand", "hand", "synced"]
