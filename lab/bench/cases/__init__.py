"""Named cases of load: prompts, lengths, arrivals, sampling, objective. Each is a YAML file."""
