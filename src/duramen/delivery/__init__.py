"""Acquiring, redelivering and counting by an opaque position: what share groups and queues have in common. Pure."""
