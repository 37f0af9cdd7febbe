"""The REST endpoints: HTTP in, HTTP out."""
