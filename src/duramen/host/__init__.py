"""The ports with real files, threads and clocks. Only `node` and `testing` import it."""
