"""What queueing theory and published closed forms say of a fleet, and fleets that are reduced to what they speak of."""
