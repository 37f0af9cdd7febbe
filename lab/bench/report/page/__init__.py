"""A run as one HTML file that needs no other."""
