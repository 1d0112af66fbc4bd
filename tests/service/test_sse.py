"""Every byte of a stream, by E.6: framing, order of chunks, headers, comments."""

import json
import re

from checks import check_usage
from script import FOX
from service import chat_body
from wire import Answer, Raw, events, frames, post

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def raw_stream(server, path, body, *headers):
    with Raw(server.port) as raw:
        raw.send(post(path, {**body, "stream": True}, *headers))
        return raw.response()


def test_headers_of_a_stream(server):
    status, headers, _ = raw_stream(server, CHAT, chat_body("#fox"), "X-Request-Id: mine")
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["transfer-encoding"] == "chunked" and "content-length" not in headers
    assert headers["x-request-id"] not in ("", "mine")
    assert headers["server"].startswith("deepinfer")


def test_frames_of_a_chat(server):
    _, _, body = raw_stream(server, CHAT, chat_body("#fox", stream_options={"include_usage": True}))
    payloads = frames(body)
    assert payloads[-1] == b"[DONE]" and payloads.count(b"[DONE]") == 1
    chunks = [json.loads(it) for it in payloads[:-1]]
    first, *middle, last, usage = chunks
    for it in chunks:
        assert it["object"] == "chat.completion.chunk" and isinstance(it["created"], int)
        assert it["id"] == first["id"] and re.fullmatch(r"chatcmpl-\w+", it["id"])
        assert it["model"] == server.model() and it["created"] == first["created"]
        assert "system_fingerprint" in it
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["choices"][0]["index"] == 0
    for it in [first, *middle]:
        assert it["choices"][0]["finish_reason"] is None and it["usage"] is None
    for it in middle:
        assert set(it["choices"][0]["delta"]) == {"content"} and it["choices"][0]["delta"]["content"]
    assert last["choices"][0]["delta"] == {} and last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    check_usage(usage["usage"])
    assert "".join(it["choices"][0]["delta"]["content"] for it in middle) == FOX


def test_no_usage_where_nobody_asked(server):
    for options in (None, {}, {"include_usage": False}):
        _, _, body = raw_stream(server, CHAT, chat_body("#fox", stream_options=options))
        assert all(not it.get("usage") and it["choices"] for it in events(body))


def test_frames_of_a_thinking_chat(server):
    _, _, body = raw_stream(server, CHAT, chat_body("#think", thinking={"type": "enabled"}))
    first, *rest = events(body)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None, "reasoning_content": ""}
    kinds = ["".join(sorted(it["choices"][0]["delta"])) for it in rest]
    assert kinds == sorted(kinds, key=["reasoning_content", "content", ""].index)
    assert kinds[-1] == ""


def test_frames_of_a_completion(server):
    _, _, body = raw_stream(server, PLAIN, {"model": server.model(), "prompt": "#fox", "max_tokens": 100,
                                            "stream_options": {"include_usage": True}})
    chunks = events(body)
    assert all(it["object"] == "text_completion" for it in chunks)
    assert "".join(it["choices"][0]["text"] for it in chunks if it["choices"]) == FOX
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] > 0


def test_each_event_is_flushed_by_itself(serve):
    """With slow steps the first words are there long before the last."""
    it = serve("--max-num-seqs", "4", script={"step_ms": 15, "answers": [{"when": "#fox", "say": FOX}]})
    with Raw(it.port) as raw:
        raw.send(post(CHAT, chat_body("#fox", stream=True)))
        raw.head()
        pieces = []
        while piece := raw.chunk():
            pieces.append(piece)
    assert len(pieces) > 5
    for piece in pieces:
        assert piece.endswith(b"\n\n") and piece.startswith((b"data: ", b":"))


def test_comments_while_nothing_comes(serve):
    it = serve("--keep-alive-interval", "100ms",
               script={"answers": [{"when": "#wait", "say": "Late.", "first_ms": 700}]})
    _, _, body = raw_stream(it, CHAT, chat_body("#wait"))
    comments = [frame for frame in body.split(b"\n\n") if frame.startswith(b":")]
    assert len(comments) >= 3 and set(comments) == {b": keep-alive"}
    assert Answer(events(body)).text == {0: "Late."}


def test_text_is_json_whatever_it_holds(server):
    _, _, body = raw_stream(server, CHAT, chat_body("#world"))
    for payload in frames(body)[:-1]:
        payload.decode()  # whole characters
        json.loads(payload)


def test_paths_without_v1_and_beta(server):
    for path in ("/chat/completions", "/v1/chat/completions"):
        assert Answer(events(raw_stream(server, path, chat_body("#fox"))[2])).text[0] == FOX
    for path in ("/completions", "/v1/completions", "/beta/completions"):
        body = {"model": server.model(), "prompt": "#fox", "max_tokens": 100}
        assert Answer(events(raw_stream(server, path, body)[2])).text[0] == FOX
    assert server.get("/models").json()["data"]


def test_nonstream_keep_alive(serve):
    it = serve("--nonstream-keep-alive", "--keep-alive-interval", "100ms",
               script={"answers": [{"when": "#wait", "say": "Late.", "first_ms": 500}]})
    with Raw(it.port) as raw:
        raw.send(post(CHAT, chat_body("#wait")))
        status, _, body = raw.response()
    assert status == 200 and body[:1].isspace()
    assert json.loads(body)["choices"][0]["message"]["content"] == "Late."
