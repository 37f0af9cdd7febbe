"""Code that the HTTP services of verifier and drafter share: API keys, metrics, logs."""
