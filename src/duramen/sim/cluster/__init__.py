"""A whole cluster in one process, under a seed: nodes on simulated disks, a network, clients, and all that goes wrong.

`world` is a run. `node` puts a node together as `node.cluster` does, on ports of the simulator; `process`, `clocks`
and `network` are those ports. `faults` is what goes wrong, `clients` and what they are made of ask for things, and
`witness`, `ledger`, `council` and `book` say whether every promise is kept.
"""
