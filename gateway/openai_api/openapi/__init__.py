"""What the OpenAPI documents say about OpenAI's endpoints: parameters, schemas and examples."""
