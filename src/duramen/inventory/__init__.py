"""The inventory of topics: tenants, namespaces and topics, what a shard's log says of them, and its rows. Pure.

`names` and `ids` are what users say, `events` the records of the log; `rows` is the layout of the view, `changes`
brings events into it, `reading` and `search` read it, `machine` decides commands, `directory` has tenants and
namespaces in memory.
"""
