"""The limits of keys: tokens a second and requests in flight; and what is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.http_service.keys.gate import BURST, Account, TokenBucket
from specpair.http_service.keys.key_file import KeyLimits
from specpair.protocol.errors import RateLimited

rates = st.floats(0.1, 1e5)
steps = st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(0, 500)), min_size=1, max_size=50)


@given(rates, steps)
def test_no_more_than_the_rate_is_spent_but_for_the_last_request(
    rate: float, requests: list[tuple[float, int]]
) -> None:
    bucket, now, spent, last = TokenBucket(rate, 0.0), 0.0, 0, 0
    for pause, cost in requests:
        now += pause
        if bucket.wait(now) == 0.0:
            bucket.spend(cost, now)
            spent, last = spent + cost, cost
            assert spent - last <= rate * (now + BURST) * (1 + 1e-9) + 1e-5


@given(rates, steps)
def test_a_request_may_begin_exactly_when_the_wait_says(rate: float, requests: list[tuple[float, int]]) -> None:
    bucket, now = TokenBucket(rate, 0.0), 0.0
    for pause, cost in requests:
        now += pause
        wait = bucket.wait(now)
        if wait > 0.0:
            if wait > 1e-3:
                assert bucket.wait(now + wait * 0.99 - 1e-9) > 0.0 or wait * rate < 1e-3
            now += wait
        assert bucket.wait(now) == 0.0
        bucket.spend(cost, now)


@given(rates, st.floats(0.0, 1e6))
def test_an_idle_bucket_holds_a_burst_and_no_more(rate: float, idle: float) -> None:
    bucket = TokenBucket(rate, 0.0)
    bucket.spend(rate * BURST + 10.0, idle)
    assert bucket.wait(idle) == pytest.approx(10.0 / rate, rel=1e-6)


def test_another_rate_counts_from_now_on() -> None:
    bucket = TokenBucket(10.0, 0.0)
    bucket.spend(110.0, 0.0)
    assert bucket.wait(0.0) == 10.0
    bucket.change(100.0, 5.0)
    assert bucket.wait(5.0) == pytest.approx(0.5)


def test_requests_in_flight_are_limited_with_the_time_until_one_ends() -> None:
    account, limits = Account(), KeyLimits(requests=2)
    for now in (0.0, 1.0):
        account.begin_request(limits, now)
    with pytest.raises(
        RateLimited, match="2 requests of yours are in flight, and your key may have 2 at once"
    ) as refused:
        account.begin_request(limits, 4.0)
    assert refused.value.details["retry_after"] == 4.0, "as long as the first has taken by now"
    account.end_request(5.0)
    account.begin_request(limits, 5.0)
    assert account.usage.requests == 3, "refused ones are not counted"
    account.end_request(6.0)
    account.end_request(6.0)
    account.begin_request(KeyLimits(), 6.0)


def test_tokens_a_second_are_limited_with_the_exact_time() -> None:
    account, limits = Account(), KeyLimits(tokens_per_second=50)
    account.begin_request(limits, 0.0)
    account.count(0.0, prompt=1000, generated=30, drafted=50, accepted=10)  # spends 70, of 50 in the bucket
    with pytest.raises(RateLimited, match="may spend 50 tokens a second") as refused:
        account.begin_request(limits, 0.1)
    assert refused.value.details == {"retry_after": 0.3, "type": "tokens"}
    account.begin_request(limits, 0.4)
    account.count(0.4, generated=1)
    with pytest.raises(RateLimited):
        account.begin_request(limits, 0.4)
    account.begin_request(KeyLimits(), 0.4)
