"""Many drafters that connect, crash, stall and return."""
