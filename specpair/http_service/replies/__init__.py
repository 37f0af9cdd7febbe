"""The replies of a service: JSON, errors, and server-sent events."""
