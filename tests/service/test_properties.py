"""The properties at the end of D as loops over seeded draws."""

import concurrent.futures
import json
import random

from checks import STATUSES, answer_of
from script import FOX, TOOLS, shared_script
from service import FULL, chat_body, wait_for
from wire import stream

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
ROUNDS = 400 if FULL else 40
NAMES = ["#fox", "#world", "#any", "#two", "#one", "#think", "#broken", "#long", "#prefix", "#json", "#roles"]


def draw_chat(draw):
    body = chat_body(f"{draw.choice(NAMES)} {draw.randrange(5)}" + " word" * draw.randrange(40),
                     max_tokens=draw.choice([1, 2, 7, 40, 150]), temperature=draw.choice([0, 0.7, 1.3]),
                     seed=draw.randrange(1 << 30))
    if draw.random() < 0.4:
        body["stop"] = draw.sample(["fox", "o", " ", "then", "\n", "ing", "\ufffd", "漢", FOX[4:19]],
                                   draw.randrange(1, 4))
    if draw.random() < 0.3:
        body["thinking"] = {"type": "enabled"}
    if draw.random() < 0.4:
        body["tools"] = TOOLS
    if draw.random() < 0.2:
        body["n"] = draw.randrange(2, 4)
    if draw.random() < 0.2:
        body["skip_special_tokens"] = False
    return body


def said(choice):
    message = choice["message"]
    calls = [(it["function"]["name"], it["function"]["arguments"]) for it in message.get("tool_calls") or []]
    return (message["content"] or "", message.get("reasoning_content") or "", calls, choice["finish_reason"])


def whole(server, body):
    reply = server.post(CHAT, body)
    assert reply.status_code == 200, reply.text
    return [said(it) for it in reply.json()["choices"]]


def streamed(server, body):
    it = stream(server, CHAT, body)
    return [(it.text[i], it.reasoning[i],
             [(call["name"], call["arguments"]) for _, call in sorted(it.calls.get(i, {}).items())],
             it.finish[i]) for i in sorted(it.finish)]


def test_stream_is_as_whole(server):
    """(a)"""
    for seed in range(ROUNDS):
        body = draw_chat(random.Random(seed))
        assert streamed(server, body) == whole(server, body), (seed, body)


def test_overlap_batch_prefix_and_drafts_change_nothing(serve):
    """(b) (c) (d) (f): whatever the engine does at once, a request's answer is its own."""
    variants = [serve("--depth", "1", "--no-prefix-cache", "--max-num-seqs", "1"), serve(),
                serve("--depth", "3", "--num-drafts", "3", "--block-size", "8", "--chunk-size", "16",
                      "--max-num-seqs", "32")]
    bodies = [draw_chat(random.Random(7000 + seed)) for seed in range(ROUNDS)]
    wanted = [whole(variants[0], body) for body in bodies]
    for server in variants[1:]:
        for _ in range(2):  # cold, then from the prefix cache
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                got = list(pool.map(lambda body, server=server: whole(server, body), bodies))
            for seed, (one, other) in enumerate(zip(got, wanted)):
                assert one == other, (seed, server.arguments, bodies[seed])


def test_overlap_and_batch_with_a_real_model(serve):
    """(b) (c) (f) on the embedded model: depth 1 alone, depth 2 in a batch, with drafts."""
    base = ("--num-threads", "1", "--max-num-seqs")
    one = serve(*base, "1", "--depth", "1", script=None)
    many = [serve(*base, "32", script=None), serve(*base, "8", "--num-drafts", "3", "--num-threads", "1", script=None)]
    draw = random.Random(3)
    bodies = [chat_body(draw.choice(["Count from 3 to 12.", "What is 7 + 5?", "Spell the word apple."]),
                        max_tokens=24, temperature=draw.choice([0, 1]), seed=draw.randrange(1000))
              for _ in range(12)]
    wanted = [whole(one, body) for body in bodies]
    for server in many:
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            assert list(pool.map(lambda body, server=server: whole(server, body), bodies)) == wanted


def test_preempted_is_as_not_preempted(serve):
    """(e)"""
    tight = serve("--block-size", "4", "--num-kv-blocks", "128", "--max-model-len", "400", "--max-num-seqs", "16")
    ample = serve()
    before = tight.stats()["preemptions"]

    def ask(server):
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            return list(pool.map(lambda i: answer_of(server.post(PLAIN, {
                "model": server.model(), "prompt": f"#long {i}", "max_tokens": 100, "temperature": 1, "seed": i}))[0],
                range(32)))

    assert ask(tight) == ask(ample)
    assert tight.stats()["preemptions"] > before


def mutate(draw, data):
    data = bytearray(data)
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(5)
        if kind == 0 and data:
            data[at % len(data)] = draw.randrange(256)
        elif kind == 1:
            data[at:at] = draw.choice([b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"null", b"-1", b"1e999", b"\x00",
                                       b"\xff", b'\\ud800', b"true", b"9" * 40])
        elif kind == 2:
            del data[at:at + draw.randrange(1, 10)]
        elif kind == 3:
            data[at:at] = data[draw.randrange(len(data) + 1):][:draw.randrange(1, 30)]
        else:
            data[at:] = b""
    return bytes(data)


def odd_value(draw, depth=0):
    return draw.choice([None, True, False, 0, -1, 1, 2**31, 2**63, -2**63, 2**64, 1.5, -0.0, 1e308, "", "a", "#fox",
                        "\x00", "\ud7ff", "a" * 5000, [], {}, [None], [[]], {"a": 1}, [-1], ["a", 1], {"type": "a"},
                        {"type": "function", "function": {"name": ""}}]
                       + ([[odd_value(draw, 1)], {"a": odd_value(draw, 1)}] if depth == 0 else []))


def test_any_body_gets_an_answer(server):
    """(h): bytes of any kind; then fields of any kind."""
    draw = random.Random(11)
    paths = [CHAT, PLAIN, "/tokenize", "/detokenize", "/render"]
    base = {CHAT: chat_body("#fox", max_tokens=3, tools=TOOLS, stop=["a"]),
            PLAIN: {"prompt": [20, 21], "max_tokens": 3}, "/tokenize": {"prompt": "a"},
            "/detokenize": {"tokens": [20]}, "/render": chat_body("a")}
    fields = ["model", "messages", "prompt", "tokens", "max_tokens", "max_completion_tokens", "temperature", "top_p",
              "top_k", "min_p", "seed", "stop", "n", "stream", "stream_options", "logprobs", "top_logprobs", "tools",
              "tool_choice", "response_format", "thinking", "reasoning_effort", "logit_bias", "user", "cache_salt",
              "priority", "echo", "suffix", "best_of", "timings", "min_tokens", "stop_token_ids", "ignore_eos"]
    seen = {}
    with server.client() as client:
        for i in range(ROUNDS * 15):
            path = draw.choice(paths)
            if i % 3 == 0:
                data = mutate(draw, json.dumps(base[path]).encode())
            elif i % 3 == 1:
                data = json.dumps({**base[path], draw.choice(fields): odd_value(draw)}).encode()
            else:
                data = draw.randbytes(draw.randrange(0, 60))
            reply = client.post(path, content=data, headers={"content-type": "application/json"})
            assert reply.status_code in STATUSES, (reply.status_code, path, data, reply.text[:300])
            if reply.status_code != 200:
                assert reply.json()["error"]["message"], (path, data)
                assert len(reply.content) <= 4096
            elif reply.headers["content-type"].startswith("application/json"):
                reply.json()
            seen[reply.status_code] = seen.get(reply.status_code, 0) + 1
    assert seen.get(200, 0) > 20 and seen.get(400, 0) > 100, seen


def test_what_was_taken_has_ended(own):
    """(i): answers begun = answers ended, by reason; tokens as the clients counted them."""
    it = own("--max-num-seqs", "8", "--block-size", "8", "--max-queued-requests", "400", script=shared_script())
    reasons, tokens, prompts, count = {}, 0, 0, 0
    before = it.metrics()  # it has answered itself once, to warm up

    requests = ROUNDS * 3

    def ask(seed):
        body = draw_chat(random.Random(90_000 + seed))
        return body, it.post(CHAT, body).json()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for body, reply in pool.map(ask, range(requests)):
            count += body.get("n", 1)
            tokens += reply["usage"]["completion_tokens"]
            prompts += reply["usage"]["prompt_tokens"] * body.get("n", 1)
            for choice in reply["choices"]:
                reasons[choice["finish_reason"]] = reasons.get(choice["finish_reason"], 0) + 1
    wait_for(lambda: not it.is_at_rest(), "at rest")
    after = it.metrics()
    moved = {key: after[key] - before[key] for key in before}
    ended = {reason: moved[("request_success_total", ("finished_reason", reason))]
             for reason in ("stop", "length", "tool_calls", "abort", "error", "resource")}
    assert sum(ended.values()) == count == sum(reasons.values())
    for reason, number in reasons.items():
        assert ended[reason] == number, (reason, ended, reasons)
    assert moved["e2e_request_latency_seconds_count"] == requests
    assert moved["generation_tokens_total"] == tokens
    assert moved["prompt_tokens_total"] == prompts
    it.check_rest()
