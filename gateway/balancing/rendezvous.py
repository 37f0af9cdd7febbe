"""Weighted rendezvous hashing: each key has an order of the nodes, which other nodes do not change.

Every node draws an exponential variate with its weight as the rate, by a hash of the key and its name. The order is the
variates'. So a node is the first for a share of the keys that is its weight's share of all weights. If a node
leaves, only the keys whose first it was have another first; if one joins, only those that it takes. (Thaler,
Ravishankar, "Using name-based mappings to increase hit rates", 1998; with weights: Schindelhauer, Schomaker, "Weighted
distributed hash tables", 2005, the logarithmic method.)
"""

import hashlib
import math
from collections.abc import Iterable
from typing import TypeVar

from gateway.balancing.candidate import Candidate

C = TypeVar("C", bound=Candidate)
_BITS = 53  # of the hash: as many as a float holds


def ordered(key: str, nodes: Iterable[C]) -> list[C]:
    """The nodes in the order of the key. Two processes with the same nodes find the same order."""
    keyed = hashlib.blake2b(key.encode(), digest_size=8, person=b"specpair-node")
    drawn = [(_variate(keyed, each), each.name, each) for each in nodes]
    return [node for *_, node in sorted(drawn, key=lambda each: each[:2])]


def _variate(keyed: "hashlib.blake2b", node: Candidate) -> float:
    hashed = keyed.copy()
    hashed.update(b"\0" + node.name.encode())
    drawn = int.from_bytes(hashed.digest(), "big") >> (64 - _BITS)
    return -math.log((drawn + 0.5) / 2**_BITS) / node.weight
