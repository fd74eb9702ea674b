"""The door between the nodes of a cluster: sockets, the proof of the secret, messages."""
