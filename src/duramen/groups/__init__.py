"""Consumer groups: the classic protocol's state machine and the records that keep it. Pure."""
