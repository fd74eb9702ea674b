"""Light queues: what the log of a shard says, and the rows of its view. Pure.

`names` and `positions` are what users say, `operations` the records of the log; `runs` and `rows` are the layout of the
view, `changes` brings records into it, `reading` reads it, `machine` decides commands.
"""
