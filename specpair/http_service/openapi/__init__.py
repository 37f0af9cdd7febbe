"""The OpenAPI documents of the services: what an operation is, how a document is built, and the page that shows it."""
