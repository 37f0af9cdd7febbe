"""What a pair does, told to pages as it happens."""
