"""The peers of a measurement, started and stopped on free ports and in directories of their own."""
