"""Transactions among the nodes of a cluster: who coordinates an id, who joins, and markers on their way to leaders.

`cluster` puts it together. See docs/adr/transactions-on-a-cluster.md.
"""
