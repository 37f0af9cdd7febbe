"""What the endpoints read and write: requests, replies, chunks, errors."""
