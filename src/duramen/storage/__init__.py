"""The log on disk: one write-ahead log for all logs of a node, their segments, and what recovers them.

Reaches the disk only through `base.ports`; knows no thread, no event loop and no clock.
"""
