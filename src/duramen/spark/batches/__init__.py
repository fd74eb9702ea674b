"""Record batches to Arrow and back: natively, or by twins in Python. Pure."""
