"""What a cluster agrees on: events, the state they add up to, and decisions from a request to events. Pure."""
