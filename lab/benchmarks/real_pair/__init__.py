"""A real pair of models on real texts: both ends here, or with what the target wrote on machines that others have."""
