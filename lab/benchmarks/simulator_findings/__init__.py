"""What other simulators of the field have found, repeated and explained."""
