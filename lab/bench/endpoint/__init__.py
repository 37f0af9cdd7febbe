"""The endpoints that are measured: sides, requests, the replies' chunks, what an endpoint takes."""
