"""Assertions that many tests share."""

from script import EOS

STATUSES = {200, 400, 401, 404, 405, 408, 411, 413, 415, 422, 429, 503}
TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
         405: "invalid_request_error", 408: "timeout_error", 413: "invalid_request_error",
         415: "invalid_request_error", 429: "rate_limit_error", 500: "server_error",
         503: "service_unavailable_error"}


def error_of(reply, status=400, code=None, param=None):
    """The error of a refusal, in OpenAI's envelope."""
    assert reply.status_code == status, f"{reply.status_code}: {reply.text[:300]}"
    assert reply.headers["content-type"].startswith("application/json")
    assert len(reply.content) <= 4096, len(reply.content)
    body = reply.json()
    assert set(body) == {"error"}, body
    error = body["error"]
    assert {"message", "type", "param", "code"} <= set(error), error
    assert isinstance(error["message"], str) and error["message"]
    if status in TYPES:
        assert error["type"] == TYPES[status], error
    if code:
        assert error["code"] == code, error
    if param:
        assert error["param"] and error["param"].startswith(param), error
    if status in (429, 503):
        assert int(reply.headers["retry-after"]) >= 1
    return error


def answer_of(reply):
    """The one choice of an answer that is not streamed, and its usage."""
    assert reply.status_code == 200, reply.text
    body = reply.json()
    check_usage(body["usage"])
    return body["choices"][0], body["usage"]


def check_usage(usage):
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], usage
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_cache_hit_tokens"] == cached, usage
    assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == \
        usage["prompt_tokens"], usage
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 0 <= reasoning <= usage["completion_tokens"], usage


def bytes_of(listed):
    """The text that logprobs spell."""
    return b"".join(bytes(it["bytes"] or []) for it in listed)


__all__ = ["EOS", "STATUSES", "answer_of", "bytes_of", "check_usage", "error_of"]
