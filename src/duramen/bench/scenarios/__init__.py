"""The targets, measured: each module takes a field of servers and returns outcomes."""
