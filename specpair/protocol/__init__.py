"""What both ends send each other: requests and responses."""
