"""The steps of a recovery, and the logs that they bring back. Blocking; before anything is served."""
