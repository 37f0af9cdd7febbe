"""One run of a text behind ports: who drafts, who verifies, and the clock. Both ends run it."""
