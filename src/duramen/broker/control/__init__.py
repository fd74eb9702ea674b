"""The controller at work: what nodes and users ask for is decided where the quorum is led, on what is proposed already.

`controller` is a node's part in it, `active` decides while this node leads; `lifecycle` is how a node takes part:
registered, heard, drained; `asking` brings a request to whoever leads. No threads, files or clock: only ports.
"""
