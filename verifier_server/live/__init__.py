"""What a verifier does, told to pages as it happens."""
