"""The coordinator of groups at work: of each kind, their offsets, and what an operator does with them."""
