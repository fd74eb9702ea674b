"""Keyed streams: visible records, snapshots, and what compaction may drop. Pure. Decisions: docs/adr/keyed-views.md.

The *view* of a partition is a function of its log up to a position C, which is never above the high watermark:

    latest    hash of a key -> offset of its newest record
    prev      of each record, in the order in which records count, the distance to the record that it supersedes
    live      one bit an offset: it counts below C, and nothing below C supersedes it
    S0        the oldest snapshot that may still be opened

A record counts at its own offset; in a transaction, at the offset of the commit marker. A snapshot S is one integer,
like Kafka's offsets: it contains what counts below S, and for each key shows the record with the highest offset.
"""
