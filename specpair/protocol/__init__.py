"""The protocol between verifier and drafter: requests and responses."""
