"""The OpenAPI document of a table of routes, and a page to read it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema
from starlette.responses import HTMLResponse, Response

from ...base.errors import AEnvError
from . import envelope
from .accounts import Role
from .routes import Route, RouteCall

_REFUSALS = {400: "the request is wrong", 429: "too many requests", 503: "something we need does not answer now"}
_REFUSALS_WITH_ACCOUNTS = {401: "no token, or one that is not valid", 403: "not allowed"}


def routes(served: Iterable[Route], version: str) -> list[Route]:
    """The routes that describe `served`, and themselves."""
    table: list[Route] = []

    async def document(call: RouteCall) -> Response:
        return envelope.reply(200, describe(table, version))

    async def page(call: RouteCall) -> Response:
        return HTMLResponse(_page(describe(table, version)), headers={"content-security-policy": _POLICY})

    table += served
    table += [
        Route("GET", "/openapi.json", document, None, "this document", media="application/json"),
        Route("GET", "/docs", page, None, "this document, as a page", media="text/html"),
    ]
    return table


def describe(table: Iterable[Route], version: str) -> dict[str, Any]:
    """The document, complete: every route, who may call it, what it takes and gives."""
    table = list(table)
    models = [(route.body, "validation") for route in table if route.body]
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    components: dict[str, Any] = schemas.get("$defs", {})
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        plain = re.sub(r"{(\w+):\w+}", r"{\1}", route.path)  # `{path:path}`, Starlette's, is `{path}` to others
        paths.setdefault(plain, {})[route.method.lower()] = _operation(route, components)
    components["Error"] = _envelope({"type": "null"}, success=False)
    return {
        "openapi": "3.1.0",
        "info": {"title": "aenv", "version": version, "description": "Environments, instances and services."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    open_to_all = route.access in (None, Role.ANONYMOUS)
    needs = "anyone" if open_to_all or not route.access else f"role {route.access.value} or above"
    operation: dict[str, Any] = {
        "summary": route.summary,
        "description": f"Who may call it: {needs}.",
        "operationId": re.sub(r"\W+", "_", f"{route.method} {route.path}").strip("_").lower(),
        "parameters": _parameters(route),
        "responses": {"200": _success(route, components), **_failures(route)},
    }
    if route.access is not None:
        operation["security"] = [{"token": []}, *([{}] if open_to_all else [])]
    if route.body:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    text = {"schema": {"type": "string"}}
    in_path = [
        {"name": name, "in": "path", "required": True, **text} for name in re.findall(r"{(\w+)", route.path)
    ]
    return in_path + [
        {"name": name, "in": "query", "description": meaning, **text} for name, meaning in route.query.items()
    ]


def _success(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    if route.media:
        return {"description": "done", "content": {route.media: {}}}
    data: dict[str, Any] = {}
    if route.reply is not None:
        adapter: TypeAdapter[Any] = TypeAdapter(route.reply)
        data = adapter.json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
        components.update(data.pop("$defs", {}))
    return {"description": "done", "content": {"application/json": {"schema": _envelope(data, success=True)}}}


def _failures(route: Route) -> dict[str, Any]:
    known = {**_REFUSALS, **(_REFUSALS_WITH_ACCOUNTS if route.access else {})}
    if "{" in route.path:
        known[404] = "not found"
    schema = {"$ref": "#/components/schemas/Error"}
    content = {"application/json": {"schema": schema}}
    failures = {str(status): {"description": what, "content": content} for status, what in known.items()}
    return {**failures, "default": {"description": AEnvError.__doc__, "content": content}}


def _envelope(data: dict[str, Any], *, success: bool) -> dict[str, Any]:
    properties = {
        "success": {"const": success},
        "code": {"type": "integer"},
        "message": {"type": "string"},
        "data": data,
    }
    if not success:
        properties["error"] = {"type": "string"}
    return {"type": "object", "required": list(properties), "properties": properties}


# A page of our own and no script: a reference needs no code from elsewhere.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430 }
details { border: 1px solid #d8dee6; border-radius: 6px; margin: .4rem 0; padding: .4rem .8rem }
summary { cursor: pointer }
code { font-size: 14px; margin-right: .5rem } .method { display: inline-block; width: 4.5rem; font-weight: 600 }
table { border-collapse: collapse } td { padding: .15rem 1rem .15rem 0; vertical-align: top }
.who { color: #5a6675 }
@media (prefers-color-scheme: dark) {
  body { background: #14181e; color: #dfe5ec }
  details { border-color: #333c47 } }
"""


def _page(document: dict[str, Any]) -> str:
    parts = [
        f"<details><summary><code><span class=method>{method.upper()}</span> {_text(path)}</code> "
        f"{_text(operation['summary'])}</summary><p class=who>{_text(operation['description'])}</p>"
        f"{_rows(operation, document['components']['schemas'])}</details>"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>aenv: routes</title><style>{_STYLE}</style>"
        f"<h1>Routes</h1><p>aenv {_text(document['info']['version'])}; the same as data: "
        f"<a href=openapi.json>openapi.json</a></p>{''.join(parts)}</html>"
    )


def _rows(operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [(parameter["name"], parameter.get("description", "")) for parameter in operation["parameters"]]
    if body := operation.get("requestBody"):
        schema = schemas[body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        rows.append(("body", f"{schema['title']}: {', '.join(schema.get('properties', ()))}"))
    cells = "".join(f"<tr><td><code>{_text(name)}</code><td>{_text(what)}" for name, what in rows)
    return f"<table>{cells}</table>"


def _text(value: str) -> str:
    return html.escape(value, quote=False)
