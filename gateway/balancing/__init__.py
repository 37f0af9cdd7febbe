"""Which of several nodes a text goes to. Pure: it neither measures nor waits, so a simulator can run the same code."""
