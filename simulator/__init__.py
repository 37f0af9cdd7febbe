"""Drafters and verifiers in virtual time, with the code that ships: scheduler, controller, router. And engines of a
stated speed in real time, to compare with."""
