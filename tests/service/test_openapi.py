"""schemathesis against /openapi.json: bounded, seeded."""

import json

import jsonschema_rs
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from checks import STATUSES
from script import TOOLS
from service import FULL

SKIPPED = {  # what changes the server for others, or never ends
    ("POST", "/v1/internal/drain"), ("GET", "/v1/internal/events"), ("POST", "/start_profile"),
    ("POST", "/stop_profile")}
EXAMPLES = 100 if FULL else 8


def operations(server):
    schema = schemathesis.openapi.from_dict(server.get("/openapi.json").json())
    for found in schema.get_all_operations():
        it = found.ok()
        if (it.method.upper(), it.path) not in SKIPPED:
            yield it


def test_document(server):
    document = server.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    paths = document["paths"]
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/detokenize", "/render",
                 "/health", "/metrics", "/version", "/v1/internal/requests", "/v1/internal/stats"):
        assert path in paths, path
    text = json.dumps(document)
    for name in ("max_completion_tokens", "reasoning_effort", "cache_salt", "stream_options", "tool_choice"):
        assert name in text, name


def test_the_document_does_not_promise_json_beside_tools(server):
    document = server.get("/openapi.json").json()
    allowed = jsonschema_rs.validator_for({**document, "$ref": "#/components/schemas/ChatRequest"}).is_valid
    body = {"messages": [{"role": "user", "content": "json"}], "tools": TOOLS}
    held = {"response_format": {"type": "json_object"}}
    assert allowed(body) and allowed({**body, **held, "tools": []})
    assert allowed({**body, **held, "tool_choice": "none"})
    assert not allowed({**body, **held}) and not allowed({**body, **held, "tool_choice": "auto"})


def test_every_operation_answers_whatever_the_schema_allows(server):
    count = 0
    for operation in operations(server):
        count += 1

        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
                  phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case):
            if isinstance(case.body, dict):  # bounded: a model that goes on takes its time
                case.body["max_tokens"] = 4
                case.body.pop("max_completion_tokens", None)
            reply = case.call(base_url=server.url, timeout=30)
            assert reply.status_code in STATUSES, (reply.status_code, case.method, case.path, reply.text[:300])
            if reply.status_code >= 400:
                assert reply.json()["error"]["code"], reply.text[:300]

        ask()
    assert count >= 12


def test_answers_have_the_shape_the_document_says(server):
    schema = schemathesis.openapi.from_dict(server.get("/openapi.json").json())
    for method, path, body in (("get", "/v1/models", None), ("get", "/version", None), ("get", "/health", None),
                               ("post", "/tokenize", {"prompt": "a"}), ("post", "/detokenize", {"tokens": [20]}),
                               ("post", "/v1/chat/completions",
                                {"messages": [{"role": "user", "content": "#fox"}], "max_tokens": 5}),
                               ("post", "/v1/completions", {"model": server.model(), "prompt": "a", "max_tokens": 5})):
        operation = schema[path][method]
        case = operation.Case(body=body) if body else operation.Case()
        reply = case.call(base_url=server.url)
        assert reply.status_code == 200, reply.text
        operation.validate_response(reply)
