"""What both ends send each other: requests, responses, and the position rule."""
