"""A real pair of models on real texts: measured on this machine, or simulated on other machines from recorded texts."""
