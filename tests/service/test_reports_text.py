"""D.1: streaming, stop strings, Unicode. Numbers are those of the reports."""

import json

import pytest

from checks import answer_of, bytes_of, error_of
from script import BAD_BYTES, FOX, LONG_STOP, WORLD
from service import chat_body
from wire import Raw, events, post, stream

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def both(server, prompt, **fields):
    """Text and finish of a chat and of a plain completion, whole and streamed: all the same."""
    plain = {"model": server.model(), "prompt": prompt, "max_tokens": 400, "temperature": 0, **fields}
    whole, usage = answer_of(server.post(CHAT, chat_body(prompt, **fields)))
    text, finish = whole["message"]["content"], whole["finish_reason"]
    chat = stream(server, CHAT, chat_body(prompt, stream_options={"include_usage": True}, **fields))
    assert (chat.text[0], chat.finish[0]) == (text, finish)
    assert chat.usage["completion_tokens"] == usage["completion_tokens"]
    other, _ = answer_of(server.post(PLAIN, plain))
    assert (other["text"], other["finish_reason"]) == (text, finish)
    flow = stream(server, PLAIN, plain)
    assert (flow.text[0], flow.finish[0]) == (text, finish)
    return text, finish


@pytest.mark.parametrize("stop", ["own fox", "T", " ", ".", "dog.", "quick brown fox j", "zzz",
                                  ["over", "fox"], ["fox jumps over", "jumps"], ["lazy cat", "y d"]])
def test_d01_stop_split_over_chunks(server, stop):
    """Of several stops the one that is complete first counts."""
    ends = [(FOX.find(it) + len(it), FOX.find(it)) for it in ([stop] if isinstance(stop, str) else stop)
            if it in FOX]
    assert both(server, "#fox", stop=stop) == (FOX[:min(ends)[1]] if ends else FOX, "stop")


def test_d01_every_place_a_stop_may_begin(server):
    for begin in range(0, len(FOX) - 4, 3):
        stop = FOX[begin:begin + 4]
        chat = stream(server, CHAT, chat_body("#fox", stop=stop))
        assert chat.text[0] == FOX[:FOX.find(stop)]


def test_d03_long_stop_string(server):
    assert len(LONG_STOP) > 60
    assert both(server, "#longstop", stop=LONG_STOP) == ("First a word, ", "stop")


def test_d04_text_ends_with_the_begin_of_a_stop(server):
    assert both(server, "#prefix", stop=["ENDING", "END of"]) == ("It ends with END", "stop")
    for limit in (1, 7, 20):
        free, _ = both(server, "#whole", max_tokens=limit)
        text, finish = both(server, "#whole", max_tokens=limit, stop=free[-3:] + "\u0001never")
        assert (text, finish) == (free, "length")


def test_d06_empty_stop_string(server):
    for stop in ("", ["", "a"]):
        error_of(server.post(CHAT, chat_body("#fox", stop=stop)), param="stop")
        error_of(server.complete("#fox", stop=stop), param="stop")
        error_of(server.post(CHAT, chat_body("#fox", stop=stop, stream=True)), param="stop")


def test_d07_no_stop_is_as_absent(server):
    for stop in ([], None):
        assert both(server, "#fox", stop=stop) == (FOX, "stop")


def test_d09_ignore_eos(server):
    for path, body in ((CHAT, chat_body("#fox")),
                       (PLAIN, {"model": server.model(), "prompt": "#fox", "temperature": 0})):
        body |= {"ignore_eos": True, "max_tokens": 64}
        choice, usage = answer_of(server.post(path, body))
        assert (choice["finish_reason"], usage["completion_tokens"]) == ("length", 64)


def test_d10_no_replacement_character_within_a_character(server):
    assert both(server, "#world") == (WORLD, "stop")
    assert both(server, "#whole") == (WORLD, "stop")
    body = post(CHAT, chat_body("#world", stream=True))
    with Raw(server.port) as it:
        it.send(body)
        _, _, data = it.response()
    for chunk in events(data):
        for choice in chunk["choices"]:
            assert "\ufffd" not in (choice["delta"].get("content") or "")


def test_d10_cut_within_a_character(server):
    """Only at its very end may a text show that a character is not complete, and once."""
    for limit in range(1, 24):
        text, finish = both(server, "#world", max_tokens=limit)
        assert finish == "length"
        whole = WORLD.encode()[:limit].decode("utf-8", "replace")
        assert text == whole


@pytest.mark.parametrize("name", BAD_BYTES)
def test_d12_invalid_utf8_in_output(server, name):
    assert both(server, name)[0] == BAD_BYTES[name][1]


def test_d13_invalid_utf8_in_a_body(server):
    for path in (CHAT, PLAIN, "/tokenize"):
        body = b'{"prompt":"\xc4\xe3", "messages":[{"role":"user","content":"\xc4\xe3"}]}'
        reply = server.post(path, content=body, headers={"content-type": "application/json"})
        error = error_of(reply, code="invalid_utf8")
        assert any(c.isdigit() for c in error["message"]), error
    lone = rb'{"messages":[{"role":"user","content":"a\ud83d"}]}'
    reply = server.post(CHAT, content=lone, headers={"content-type": "application/json"})
    assert reply.status_code in (200, 400), reply.text


def test_d15_text_offsets(server):
    body = {"model": server.model(), "prompt": "#whole", "max_tokens": 100, "temperature": 0,
            "logprobs": 1}
    whole, _ = answer_of(server.post(PLAIN, body))
    flow = stream(server, PLAIN, body)
    streamed = [it for one in flow.logprobs[0] for it in one["text_offset"]]
    assert streamed == whole["logprobs"]["text_offset"]
    assert streamed == sorted(streamed)
    assert len(streamed) == len(whole["logprobs"]["tokens"]) == len(whole["logprobs"]["token_logprobs"])
    # echo is not there yet: said, not ignored
    error_of(server.complete("#fox", echo=True, logprobs=1), param="echo")


def test_d16_text_ids_and_logprobs_line_up(server):
    for name, text in (("#world", WORLD), ("#fox", FOX)):
        body = chat_body(name, logprobs=True, top_logprobs=0, stream_options={"include_usage": True})
        flow = stream(server, CHAT, body)
        listed = [it for one in flow.logprobs[0] for it in one["content"]]
        assert bytes_of(listed).decode() == text == flow.text[0]
        assert flow.usage["completion_tokens"] == len(listed) + 1  # the stop token is counted, and no part of the answer
        whole, _ = answer_of(server.post(CHAT, {k: v for k, v in body.items() if k != "stream_options"}))
        assert whole["logprobs"]["content"] == listed


@pytest.mark.parametrize("path", [CHAT, PLAIN])
@pytest.mark.parametrize("fields, text", [({}, FOX), ({"stop": " fox"}, "The quick brown"), ({"max_tokens": 3}, None)])
def test_logprobs_spell_the_answer(server, path, fields, text):
    """As OpenAI's: no token beyond the text, be it the end of the sequence or behind a stop string."""
    body = chat_body("#fox", logprobs=True) if path == CHAT else \
        {"model": server.model(), "prompt": "#fox", "max_tokens": 100, "temperature": 0, "logprobs": 0}
    body = {**body, **fields}
    whole, _ = answer_of(server.post(path, body))
    shown = whole["message"]["content"] if path == CHAT else whole["text"]
    assert text is None or shown == text
    flow = stream(server, path, body)
    assert flow.text[0] == shown
    key = "content" if path == CHAT else "tokens"
    listed = [it for one in flow.logprobs[0] for it in one[key]]
    assert listed == whole["logprobs"][key]
    assert "".join(it["token"] if path == CHAT else it for it in listed) == shown


def test_held_text_of_a_stop_is_not_lost_nor_shown_twice(server):
    """Chunks of one token, each stop a word that comes or nearly comes."""
    for stop in ("fox jumpS", "dog!", "The quick brown fox jumps over the lazy dog.."):
        assert both(server, "#fox", stop=stop) == (FOX, "stop")


def test_include_stop_str_in_output(server):
    choice, _ = answer_of(server.complete("#fox", stop="fox", include_stop_str_in_output=True,
                                          max_tokens=100))
    assert choice["text"] == "The quick brown fox"


def test_stop_token_ids(server):
    ids = server.post("/tokenize", {"prompt": FOX, "add_special_tokens": False}).json()["tokens"]
    choice, usage = answer_of(server.complete("#fox", stop_token_ids=[ids[3]], max_tokens=100))
    assert FOX.startswith(choice["text"]) and choice["finish_reason"] == "stop"
    assert usage["completion_tokens"] == 4
    error_of(server.complete("#fox", stop_token_ids=[10**7]), param="stop_token_ids")
    assert json.dumps(ids)
