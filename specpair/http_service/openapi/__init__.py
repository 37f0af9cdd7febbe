"""The OpenAPI documents of the services: their operations, and how a document is built."""
