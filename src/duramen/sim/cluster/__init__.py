"""A whole cluster in one process, driven by a seed: nodes on simulated disks, a network, clients, and faults.

`world` is a run. `node` assembles a node like `node.cluster`, on simulated ports: `process`, `clocks` and `network`.
`faults` causes failures, `clients` send requests, and `checkers` verify every promise.
"""
