"""`duramen queue`: spaces of queues, and the entries in them."""
