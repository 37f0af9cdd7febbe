"""Nodes as a policy sees them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    name: str
    weight: float = 1.0
    queue: int = 0
    queue_time: float = 0.0
