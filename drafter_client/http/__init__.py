"""The verifier over HTTP: connections, the REST interface as methods, responses as types, outages."""
