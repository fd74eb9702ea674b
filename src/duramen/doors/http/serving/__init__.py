"""The HTTP server, routes as data, bodies, queries, problems, OpenAPI."""
