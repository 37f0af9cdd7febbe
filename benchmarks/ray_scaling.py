"""How tokens a second grow with replicas on Ray Serve, and with as many verifiers that a list names.

Method. Replicas with passes of 20 ms, which take no processor time. Threads write texts of mode `target`, one after the
other, a few at a time for each replica: those of one pair through Ray's proxy, then those of as many pairs as there are
verifiers, each of which knows one. The first seconds do not count. Needs requirements/ray.txt.

    python -m benchmarks.ray_scaling [--tokens 100] [--texts 4] [--seconds 30]
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

from benchmarks.fail_over import APPLICATION, PROMPT
from benchmarks.harness.report import Report, options_of
from drafter_client import Mode, Options, Pair, Tokens
from drafter_client.http.client import VerifierClient
from specpair.child_processes.serving import serve
from tests.deploy.ray_serve import cluster

REPLICAS = (1, 3)
_WARM_UP = 5.0  # seconds


def rate(pairs: list[Pair], texts: int, tokens: int, seconds: float) -> float:
    """Tokens a second of `texts` texts at a time with each of `pairs`."""
    began = time.perf_counter() + _WARM_UP
    ends = began + seconds

    def write(pair: Pair, number: int) -> int:
        counted = 0
        while time.perf_counter() < ends:
            number += 1000
            options = Options(max_tokens=tokens, temperature=0.8, seed=number, mode=Mode.TARGET)
            for event in pair.generate(PROMPT, options):
                if isinstance(event, Tokens) and began <= time.perf_counter() < ends:
                    counted += len(event.tokens)
        return counted

    with ThreadPoolExecutor(texts * len(pairs)) as threads:
        writing = [threads.submit(write, pair, number) for number in range(texts) for pair in pairs]
        return sum(each.result() for each in writing) / seconds


def main() -> None:
    options = options_of(__doc__, {"tokens": 100, "texts": 4, "seconds": 30.0})
    report = Report("ray_scaling", options)
    measured: dict[str, dict[int, float]] = {"list": {}, "ray": {}}
    with cluster() as ray:
        for count in REPLICAS:
            ray.deploy(count, "benchmarks.paced_replicas:app")
            ray.wait_until_healthy(count)
            texts = options.texts * count
            with Pair(ray.url, None, texts=texts) as pair:
                measured["ray"][count] = rate([pair], texts, options.tokens, options.seconds)
    for count in REPLICAS:
        with ExitStack() as stack:
            urls = [stack.enter_context(serve(APPLICATION)).url for _ in range(count)]
            for url in urls:
                with closing(VerifierClient(url)) as client:
                    client.wait_until_ready()
            pairs = [stack.enter_context(Pair(url, None, texts=options.texts)) for url in urls]
            measured["list"][count] = rate(pairs, options.texts, options.tokens, options.seconds)
    for name, rates in measured.items():
        found = ", ".join(f"{count}: {tokens:.0f} tokens/s" for count, tokens in rates.items())
        few, many = REPLICAS
        report.line(f"{name:5} replicas {found}; {rates[many] / rates[few] / many * few:.2f} of linear")
    report.save()


if __name__ == "__main__":
    main()
