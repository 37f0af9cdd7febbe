"""The service's keys in the headers of Anthropic's clients."""

import anthropic
import httpx
import pytest

from tests.gateway.openai_api.conftest import verifier

BODY = {"max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}


def test_the_key_is_taken_from_x_api_key() -> None:
    with verifier(settings={"api_key": "s3cret"}) as live:
        url = f"{live.url}/v1/messages"
        for headers in ({"x-api-key": "s3cret"}, {"Authorization": "Bearer s3cret"}):
            assert httpx.post(url, json=BODY, headers=headers, trust_env=False).status_code == 200
        wrong = {"x-api-key": "s3cret", "Authorization": "Bearer other"}  # one key is meant, the usual one
        for refused in ({}, {"x-api-key": "other"}, wrong):
            reply = httpx.post(url, json=BODY, headers=refused, trust_env=False)
            error = reply.json()
            assert (reply.status_code, error["type"]) == (401, "error")
            assert error["error"]["type"] == "authentication_error"
        with anthropic.Anthropic(base_url=live.url, api_key="s3cret", max_retries=0) as client:
            assert client.messages.count_tokens(model="", messages=[{"role": "user", "content": "Hi"}]).input_tokens
        with (
            anthropic.Anthropic(base_url=live.url, api_key="other", max_retries=0) as client,
            pytest.raises(anthropic.AuthenticationError),
        ):
            client.messages.count_tokens(model="", messages=[{"role": "user", "content": "Hi"}])
