"""HTTP to the verifier: connections, the REST interface as methods, responses as types, retries, outages."""
