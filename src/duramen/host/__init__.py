"""The ports with real files, threads and clocks. Imported by `node` and `testing` only."""
