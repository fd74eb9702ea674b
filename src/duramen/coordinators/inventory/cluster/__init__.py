"""The inventory on a cluster: any node accepts a request and asks the leaders of shards that it does not lead.

`shards` routes commands and reads, `reading` is one read, `serving` responds to other nodes, `changes` runs changes
over several shards, `inventory` serves the doors.
"""
