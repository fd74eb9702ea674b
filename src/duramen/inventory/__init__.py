"""The inventory of topics: tenants, namespaces and topics, the events of a shard's log, and its rows. Pure.

`names` and `ids` parse the input of users, `events` are the log's records. `rows` is the layout of the view, `changes`
applies events to it, `reading` and `search` read it, `machine` decides commands, `directory` has tenants and namespaces
in memory.
"""
