"""What the packages of this distribution need to find each other."""
