"""Mean times in queues, as theory has them. Times are in seconds, rates per second.

A time is from arrival to departure.

Every function raises ValueError where the queue would grow without end.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace

import numpy as np


def m_g_1(rate: float, mean: float, second_moment: float) -> float:
    """Poisson arrivals, one server, any service times (Pollaczek-Khinchine). M/M/1 and M/D/1 are cases of it.

    `mean`, `second_moment`: of a service time.
    """
    return mean + rate * second_moment / (2.0 * (1.0 - _load(rate * mean)))


def m_m_1_quantile(rate: float, mean: float, quantile: float) -> float:
    """The quantile (0 to 1) of the times in an M/M/1 queue that serves in order of arrival: they are exponential."""
    return -math.log(1.0 - quantile) * mean / (1.0 - _load(rate * mean))


def m_m_k(rate: float, mean: float, servers: int) -> float:
    """Poisson arrivals, `servers` servers with one queue, exponential service times (Erlang's C formula)."""
    offered = rate * mean
    _load(offered / servers)
    term = blocked = 1.0  # Erlang's B formula, by recursion over the number of servers
    for number in range(1, servers + 1):
        term = offered * blocked
        blocked = term / (number + term)
    waits = blocked / (1.0 - offered / servers * (1.0 - blocked))  # the share of arrivals that wait
    return mean + waits * mean / (servers - offered)


def m_g_k(rate: float, mean: float, second_moment: float, servers: int) -> float:
    """The same with any service times, in approximation: there is no closed form (Lee and Longton, 1959)."""
    variation = second_moment / mean**2 - 1.0
    return mean + (1.0 + variation) / 2.0 * (m_m_k(rate, mean, servers) - mean)


def m_d_k(rate: float, service: float, servers: int) -> float:
    """The same with a constant service time (Crommelin, 1932)."""
    offered = rate * service
    load = _load(offered / servers)
    waiting, term, services = 0.0, 1.0, 0
    while term > 1e-12:
        services += 1
        coming = services * offered  # customers, on average, while each server serves so many
        least = services * servers
        first = math.exp(least * math.log(coming) - coming - math.lgamma(least + 1))  # the chance of `least` customers
        chance, further, number = first, 0.0, least
        while chance > 1e-18 * first:
            number += 1
            chance *= coming / number
            further += chance
        term = first + further - further / load
        waiting += term
    return service * (1.0 + waiting)


def in_order_of_arrival(arrivals: Sequence[float], services: Sequence[float], servers: int) -> list[float]:
    """The time of each customer where the first in line goes to the first free server (Kiefer and Wolfowitz, 1955).

    It is exact for these arrivals and services, whatever their distributions. Arrivals are in order.
    """
    free = [0.0] * servers
    heapify(free)
    times = []
    for arrival, service in zip(arrivals, services, strict=True):
        end = max(arrival, free[0]) + service
        heapreplace(free, end)
        times.append(end - arrival)
    return times


def shorter_of_two(
    arrivals: Sequence[float], services: Sequence[float], pairs: Iterable[tuple[int, int]], servers: int
) -> list[float]:
    """The time of each customer who joins the shorter one of two queues; the first one, if both are as long.

    It is exact, as `in_order_of_arrival` is. `pairs`: for each customer, numbers of two servers.
    """
    queues: list[deque[float]] = [deque() for _ in range(servers)]  # when those who are there leave
    times = []
    for arrival, service, pair in zip(arrivals, services, pairs, strict=False):
        for number in pair:
            queue = queues[number]
            while queue and queue[0] <= arrival:
                queue.popleft()
        first, second = queues[pair[0]], queues[pair[1]]
        chosen = second if len(second) < len(first) else first
        end = (chosen[-1] if chosen else arrival) + service
        chosen.append(end)
        times.append(end - arrival)
    return times


def supermarket(load: float, choices: int) -> float:
    """The time, in mean service times, where each arrival joins the shortest of `choices` queues drawn from very many
    (Mitzenmacher, "The power of two choices in randomized load balancing", 2001). One choice is M/M/1."""
    _load(load)
    total, level = 0.0, 1
    while (term := load ** (level - 1 if choices == 1 else (choices**level - choices) // (choices - 1))) > 1e-12:
        total, level = total + term, level + 1
    return total


def passes_of_slots(rate: float, mean_tokens: float, pass_time: float, slots: int) -> float:
    """A server that writes a token of each of up to `slots` texts in each pass, whatever their number; texts have a
    geometric number of tokens and wait for the pass under way. With short passes it is M/M/k.

    It is exact: a Markov chain of the texts that are there when a pass ends, and Little's law.
    """
    _load(rate * mean_tokens * pass_time / slots)
    ends, coming = 1.0 / mean_tokens, rate * pass_time
    least = slots + 200.0 * (1.0 + 1.0 / (1.0 - rate * mean_tokens * pass_time / slots))
    most = int(least)  # texts, beyond which the chain is cut off
    arrivals = _poisson(coming, most)
    moves = np.zeros((most + 1, most + 1))
    for there in range(most + 1):
        served = min(max(there, 1), slots)
        for over in range(served + 1):
            chance = math.comb(served, over) * ends**over * (1.0 - ends) ** (served - over)
            left = max(there, 1) - over
            row = chance * arrivals[: most + 1 - left]
            moves[there, left:] += row
            moves[there, most] += chance - row.sum()
    system = moves.T - np.eye(most + 1)
    system[-1] = 1.0
    share = np.linalg.solve(system, [*[0.0] * most, 1.0])  # of passes that end with so many texts there
    texts = sum(share[there] * (max(there, 1) * pass_time + rate * pass_time**2 / 2) for there in range(most + 1))
    return float(texts / (pass_time + share[0] / rate) / rate)


def _poisson(mean: float, most: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    logs = [number * math.log(mean) - mean - math.lgamma(number + 1) for number in range(most + 1)]
    chances: np.ndarray[tuple[int], np.dtype[np.float64]] = np.exp(np.array(logs))
    return chances


def _load(load: float) -> float:
    if not 0.0 < load < 1.0:
        raise ValueError(f"a queue of load {load:g} has no mean time: the load must be above 0 and below 1")
    return load
