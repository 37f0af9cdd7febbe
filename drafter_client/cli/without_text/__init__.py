"""Commands of the drafter that write no text: reports of earlier ones, and models by name."""
