"""The verifier's own metrics, and its health."""
