"""The options that the services of both ends have."""
