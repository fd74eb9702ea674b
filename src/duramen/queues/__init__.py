"""Light queues: the records of a shard's log, and the rows of its view. Pure.

`names` and `positions` parse the input of users, `operations` are the log's records. `runs` and `rows` are the layout
of the view, `changes` applies records to it, `reading` reads it, `machine` decides commands.
"""
