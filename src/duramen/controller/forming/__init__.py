"""How nodes with empty directories become a cluster, once; how a node with an empty one comes to a cluster. Pure.

`machine` is the way in, `values` are what nodes say, keep and want done, `obstacles` is why there is no cluster yet.
"""
