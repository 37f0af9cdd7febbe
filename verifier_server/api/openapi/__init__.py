"""The OpenAPI document: its operations, schemas and examples."""
