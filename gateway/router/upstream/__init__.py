"""Connections to nodes. A client library costs 1.5 ms a request here, three times as much as all else that is done."""
