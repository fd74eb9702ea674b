"""Changes of the inventory as JSON: requests and responses of HTTP and NATS."""
