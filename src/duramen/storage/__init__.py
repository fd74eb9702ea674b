"""The log on disk: the write-ahead log that all logs of a node share, their segments, and recovery.

Reaches the disk only through `base.ports`; imports no threads, event loop or clock.
"""
