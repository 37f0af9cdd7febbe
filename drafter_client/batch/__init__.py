"""Many prompts: read from a file, run several at a time, written to a results file, summed up."""
