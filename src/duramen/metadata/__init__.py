"""The metadata of a cluster: events, the state derived from them, and decisions from a request to events. Pure."""
