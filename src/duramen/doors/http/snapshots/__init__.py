"""Snapshots of keyed streams over HTTP."""
