"""Share groups at work (KIP-932): their members, share partitions, and what of them is stored."""
