"""The verifier: an HTTP service that holds the target model and says which drafts it would have written."""
