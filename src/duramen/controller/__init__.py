"""What a cluster must agree on: events in one internal log, the state they add up to, and the decisions that make them.

Pure: no I/O, no time, no randomness but what is handed in.
"""
