"""`drafter bench`: measures endpoints of OpenAI's API side by side, by named cases of load."""
