"""The OpenAPI documents of both services are valid and complete, and their examples are what the models take."""

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel

from drafter_client.serve import operations as drafter
from gateway.anthropic_api.requests import CountRequest, MessagesRequest
from gateway.openai_api.messages.objects import read_request
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from gateway.openai_api.responses.requests import ResponseRequest
from gateway.openai_api.tokens import read_tokenize
from gateway.router import operations as router
from specpair.http_service.openapi.document import Service, document
from specpair.http_service.openapi.operation import Operation
from specpair.http_service.openapi.state import UNHEALTHY
from specpair.protocol import errors, messages, service_responses
from verifier_server.api.openapi import document as verifier

Json = dict[str, Any]
SERVICES = {"verifier": verifier.SERVICE, "drafter": drafter.SERVICE, "router": router.SERVICE}
OPERATIONS = [each for service in SERVICES.values() for each in service.operations]


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Service:
    return SERVICES[request.param]


def test_document_is_valid(service: Service) -> None:
    keyed = document(service, keyed=True)
    OpenAPIV31SpecValidator(keyed).validate()
    assert keyed["security"] == [{"bearer": []}]
    assert document(service) == keyed | {"security": []}


def test_every_reference_resolves(service: Service) -> None:
    whole = document(service)
    text = json.dumps(whole)
    references = set(re.findall(r'"\$ref": "([^"]*)"', text))
    assert len(references) > 10
    for reference in references:
        found: Any = whole
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
    assert "$defs" not in text


def test_every_operation_is_described_in_full(service: Service) -> None:
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
            given = [each["$ref"].rpartition("/")[2] for each in operation.get("parameters", ())]
            parameters = whole["components"]["parameters"]
            assert re.findall("{(.*?)}", path) == [each for each in given if parameters[each]["in"] == "path"]
    assert names == {operation.endpoint.__name__ for operation in service.operations}
    assert len(names) == len(service.operations)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_field_is_described(service: Service) -> None:
    fields = {
        f"{name}.{field}": described.get("description", "")
        for name, schema in document(service)["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
    }
    assert len(fields) > 50
    assert [field for field, description in fields.items() if not description] == []


def test_api_key_is_a_bearer_token(service: Service) -> None:
    scheme = document(service)["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document(service, keyed=True)["security"] == [{"bearer": []}]
    assert document(service, keyed=False)["security"] == []


def test_every_error_occurs_in_an_operation() -> None:
    described = {error for operation in OPERATIONS for error in operation.errors}
    raised = {cls for base in (errors.RequestError, errors.ServerError) for cls in base.__subclasses__()}
    # No operation takes these methods and WebSockets; the last one is a proxy's.
    assert raised - described == {errors.MethodNotAllowed, errors.NoWebSocket, errors.BadGateway}


def test_openai_errors_have_their_status_and_always_a_param(service: Service) -> None:
    for path, methods in document(service)["paths"].items():
        if not path.startswith("/v1/"):
            continue
        for operation in methods.values():
            assert "422" not in operation["responses"]
            for status, response in operation["responses"].items():
                for example in response["content"]["application/json"].get("examples", {}).values():
                    assert int(status) >= 400 and "param" in example["value"]["error"]


def _models(service: Service) -> dict[str, type[BaseModel]]:
    operations = service.operations
    return {each.response.__name__: each.response for each in operations if each.response is not None}


def test_request_examples_are_valid(service: Service) -> None:
    openai: dict[str, type[BaseModel]] = {
        "ChatRequest": ChatRequest,
        "CompletionRequest": CompletionRequest,
        "ResponseRequest": ResponseRequest,
        "MessagesRequest": MessagesRequest,
        "CountRequest": CountRequest,
    }
    ours = {each.request.__name__: each.request for each in service.operations if each.request is not None}
    for name, examples in service.examples.requests.items():
        for example in examples.values():
            body = json.dumps(example).encode()
            if name in openai:
                read_request(openai[name], body)
            elif name == "TokenizeBody":
                read_tokenize(body)
            else:
                messages.parse(ours[name], body)  # type: ignore[type-var]  # it is a Message


def test_response_examples_are_valid(service: Service) -> None:
    models = _models(service)
    assert models.keys() == service.examples.responses.keys()
    for name, example in service.examples.responses.items():
        _check(models[name], example)


def test_event_examples_are_valid(service: Service) -> None:
    for path, events in service.examples.events.items():
        operation = _at(service, path)
        for name, data in events:
            model = dict(operation.events)[name] if operation.chunk is None else operation.chunk
            if data != "[DONE]":
                _check(model, json.loads(data))


def _at(service: Service, path: str) -> Operation:
    return next(each for each in service.operations if each.path == path)


@pytest.mark.parametrize("name", UNHEALTHY)
def test_health_examples_are_valid(name: str) -> None:
    _check(service_responses.HealthResponse, UNHEALTHY[name])


def _check(model: type[BaseModel], body: Any) -> None:
    model.model_validate_json(json.dumps(body), extra="forbid", by_alias=True, by_name=False)
