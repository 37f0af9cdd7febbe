"""The paths of OpenAI's endpoints."""

from fastapi import FastAPI

from openai_api.endpoints import Endpoints

PATHS = ("/v1/models", "/v1/models/{model}", "/v1/completions", "/v1/chat/completions")


def add_to(app: FastAPI, endpoints: Endpoints) -> None:
    """Register the endpoints. Each path works with a trailing slash, too: some programs put one."""
    for method, path, endpoint in (
        ("GET", "/v1/models", endpoints.list_models),
        ("GET", "/v1/models/{model:path}", endpoints.get_model),
        ("POST", "/v1/completions", endpoints.complete),
        ("POST", "/v1/chat/completions", endpoints.chat),
    ):
        app.add_api_route(path, endpoint, methods=[method])
        if "{" not in path:
            app.add_api_route(f"{path}/", endpoint, methods=[method], include_in_schema=False)
