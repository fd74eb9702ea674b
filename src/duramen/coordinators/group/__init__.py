"""The coordinator of consumer groups: offsets, members, lag, offset resets."""
