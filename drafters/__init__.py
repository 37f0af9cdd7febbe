"""What proposes draft tokens: a draft model, a lookup in the text, a program of the user's; one contract for all."""
