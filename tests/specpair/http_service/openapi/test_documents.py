"""The OpenAPI documents of both services are valid and complete, and their examples are what the models take."""

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel

from drafter_client.serve import live as drafter
from gateway.openai_api.messages.objects import Object, read_request
from gateway.openai_api.tokens import TokenizeBody, read_tokenize
from gateway.router import endpoints as router
from specpair.http_service.openapi.document import DescribedService, document, stream_example
from specpair.protocol import errors, messages
from verifier_server.api import document as verifier

SERVICES = {"verifier": verifier.SERVICE, "drafter": drafter.SERVICE, "router": router.SERVICE}
OPERATIONS = [each for service in SERVICES.values() for each in service.operations]


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> DescribedService:
    return SERVICES[request.param]


def test_document_is_valid(service: DescribedService) -> None:
    keyed = document(service, keyed=True)
    OpenAPIV31SpecValidator(keyed).validate()
    assert keyed["security"] == [{"bearer": []}]
    assert document(service) == keyed | {"security": []}


def test_every_operation_is_described_in_full(service: DescribedService) -> None:
    whole, names = document(service), set()
    open_to_all = {each.path for each in service.operations if not each.needs_key}
    refused = any(errors.Unauthorized in each.errors for each in service.operations)
    for path, methods in whole["paths"].items():
        for operation in methods.values():
            names.add(operation["operationId"])
            assert {"200", "500"} <= operation["responses"].keys(), path
            assert ("security" not in operation) == (path not in open_to_all)
            assert ("401" in operation["responses"]) == (refused and path not in open_to_all)
            for status, response in operation["responses"].items():
                assert response["description"]
                for content in response["content"].values():
                    assert "example" in content or content["examples"], (path, status)
                    assert content["schema"]
            if "requestBody" in operation:
                assert {"413", "400" if path.startswith("/v1/") else "422"} <= operation["responses"].keys(), path
                assert operation["requestBody"]["content"]["application/json"]["examples"]
            parameters = operation.get("parameters", ())
            assert re.findall("{(.*?)}", path) == [each["name"] for each in parameters if each["in"] == "path"]
    assert names == {operation.endpoint.__name__ for operation in service.operations}
    assert len(names) == len(service.operations)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_field_is_described(service: DescribedService) -> None:
    fields = {
        f"{name}.{field}": described.get("description", "")
        for name, schema in document(service)["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
    }
    assert len(fields) > 50
    assert [field for field, description in fields.items() if not description] == []


def test_every_error_occurs_in_an_operation() -> None:
    described = {error for operation in OPERATIONS for error in operation.errors}
    raised = {cls for base in (errors.RequestError, errors.ServerError) for cls in base.__subclasses__()}
    # No operation takes these methods and WebSockets; the last one is a proxy's.
    assert raised - described == {errors.MethodNotAllowed, errors.NoWebSocket, errors.BadGateway}


def test_openai_errors_have_their_status_and_always_a_param(service: DescribedService) -> None:
    for path, methods in document(service)["paths"].items():
        if not path.startswith("/v1/"):
            continue
        for operation in methods.values():
            assert "422" not in operation["responses"]
            for status, response in operation["responses"].items():
                for example in response["content"]["application/json"].get("examples", {}).values():
                    assert int(status) >= 400 and "param" in example["value"]["error"]


def test_request_examples_are_valid(service: DescribedService) -> None:
    for operation in service.operations:
        for example in operation.examples.values():
            body, model = json.dumps(example).encode(), operation.request
            if model is TokenizeBody:
                read_tokenize(body)
            elif model is not None and issubclass(model, Object):
                read_request(model, body)
            else:
                messages.parse(model, body)  # type: ignore[type-var,arg-type]  # it is a Message


def test_reply_examples_are_valid(service: DescribedService) -> None:
    whole = document(service)
    for operation in service.operations:
        responses = whole["paths"][operation.described_path][operation.method.lower()]["responses"]
        content = responses["200"]["content"]
        if operation.response is not None:
            _check(operation.response, content["application/json"]["example"])
        for refusal in operation.refusal[1].values() if operation.refusal else ():
            _check(operation.response, refusal)


def test_event_examples_are_valid(service: DescribedService) -> None:
    for operation in service.operations:
        if not operation.events and operation.chunk is None:
            continue
        for name, data in stream_example(operation, document(service)["components"]["schemas"]):
            if data != "[DONE]":
                _check(dict(operation.events).get(name, operation.chunk), json.loads(data))


def _check(model: type[BaseModel] | None, body: Any) -> None:
    assert model is not None
    model.model_validate_json(json.dumps(body), extra="forbid", by_alias=True, by_name=False)
