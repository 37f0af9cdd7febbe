"""The commands of `drafter`, and `specpair doctor`; with their flags and the steps that they share."""
