"""Coordinators: state machines whose state is a partition of an internal stream."""
