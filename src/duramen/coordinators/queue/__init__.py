"""The shards of queue spaces, on the coordinator runtime."""
