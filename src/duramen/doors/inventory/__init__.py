"""Changes of the inventory as JSON: what HTTP and NATS take and give."""
