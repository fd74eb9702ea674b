"""One node's broker: composes storage, the controller and the groups. No I/O, no clock, no event loop of its own."""
