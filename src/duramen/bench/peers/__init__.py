"""The systems beside which Duramen is measured, started and stopped by us on free ports and in directories of ours."""
