"""How requests go to a verifier and responses come back: one connection, its parser, its bounds."""
