"""What this machine tells of itself: its hardware, and its energy meters."""
