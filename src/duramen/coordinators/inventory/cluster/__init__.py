"""The inventory on a cluster: any node takes a request, and asks the leaders of the shards that it does not lead.

`shards` brings commands and reads to them, `reading` is one read, `serving` answers,
`changes` runs the changes of several shards, `inventory` is what the doors ask.
"""
