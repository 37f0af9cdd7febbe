"""The verifier: an HTTP service that holds the target model and verifies draft tokens against it."""
