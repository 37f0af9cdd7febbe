"""`drafter chat`: a conversation in the terminal, on one pair."""
