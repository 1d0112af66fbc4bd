"""A.1 to A.3: endpoints, fields of requests, shapes of answers."""

import concurrent.futures
import json

from probe import always, cell, edit, expect, refuse, same_text, swap, without_header
from script import FOX, TOOLS

ON = {"thinking": {"type": "enabled"}}
PACED = {"step_ms": 5, "answers": [{"when": "#long", "then": "go on"}, {"when": "#wait", "say": "x", "first_ms": 600}]}


# --- A.1 ------------------------------------------------------------------------------------------
@cell("A.1", "GET /v1/models, /v1/models/{id}", refuse("/v1/models/"))
def models(bed):
    it = bed.tiny()
    name = bed.get(it, "/v1/models").json()["data"][0]["id"]
    one = bed.get(it, f"/v1/models/{name}")
    expect(one.status == 200 and one.json()["id"] == name, one.text[:200])
    expect(bed.get(it, "/v1/models/no-such-model").status == 404, "an unknown model is no 404")
    return name


@cell("A.1", "POST /v1/chat/completions (JSON and SSE)", same_text())
def chat(bed):
    it = bed.scripted()
    whole = bed.chat(it, "#fox").choice()["message"]["content"]
    flow = bed.chat(it, "#fox", stream=True).answer()
    expect(whole == FOX == flow.text[0], (whole, flow.text))
    expect(len(flow.chunks) > 5, "not streamed")


@cell("A.1", "POST /v1/completions (JSON and SSE)", refuse("/v1/completions"))
def completions(bed):
    it = bed.scripted()
    expect(bed.complete(it, "#fox", max_tokens=100).choice()["text"] == FOX)
    flow = bed.complete(it, "#fox", max_tokens=100, stream=True).answer()
    expect(flow.text[0] == FOX and len(flow.chunks) > 5)


@cell("A.1", "/tokenize and /detokenize", refuse("/detokenize"))
def tokenize(bed):
    it = bed.tiny()
    ids = bed.post(it, "/tokenize", {"prompt": FOX, "add_special_tokens": False}).json()["tokens"]
    expect(len(ids) > 4 and bed.post(it, "/detokenize", {"tokens": ids}).json()["prompt"] == FOX)
    pieces = bed.post(it, "/tokenize", {"prompt": FOX, "add_special_tokens": False, "with_pieces": True}).json()
    expect("".join(one["piece"] for one in pieces["tokens"]) == FOX)
    return f"{len(ids)} ids"


@cell("A.1", "rendered prompt of a chat (/render)", swap("<｜User｜>", ""))
def render(bed):
    it = bed.tiny()
    shown = bed.post(it, "/render", {"messages": [{"role": "user", "content": "Hi there"}]}).json()
    expect("<｜User｜>Hi there<｜Assistant｜>" in shown["prompt"], shown)
    tokens = bed.post(it, "/tokenize", {"messages": [{"role": "user", "content": "Hi there"}]}).json()["tokens"]
    expect(shown["tokens"] == tokens, "other ids than /tokenize")


@cell("A.1", "/health, /health/live, /health/ready", always(503, only="/health/ready"))
def health(bed):
    it = bed.tiny()
    for path in ("/health", "/health/live", "/health/ready"):
        expect(bed.get(it, path).status == 200, path)
    expect(bed.get(it, "/health").json()["status"] == "ready")


@cell("A.1", "/metrics, on by default", always(content="# nothing\n", only="/metrics"))
def metrics(bed):
    it = bed.tiny()
    before = bed.metric(it, "generation_tokens_total")
    bed.complete(it, "Once", max_tokens=5, ignore_eos=True)
    expect(before is not None and bed.metric(it, "generation_tokens_total") - before == 5)


@cell("A.1", "/version and server info", swap('"version"', '"other"'))
def version(bed):
    shown = bed.get(bed.tiny(), "/version").json()
    expect(shown["version"])
    return shown["version"]


@cell("A.1", "list of live requests", edit(lambda it: it.__setitem__("data", []), only="/v1/internal/requests"))
def live_requests(bed):
    it = bed.scripted(script=PACED)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(it.chat, "#long", max_tokens=150)
        seen = bed.wait(lambda: bed.get(it, "/v1/internal/requests").json()["data"], 3)
        asked.result()
    expect(seen, "a request that runs is not listed")
    expect(seen[0]["id"] and seen[0]["state"] in ("routing", "queued", "prefill", "decode", "paused"), seen)
    return seen[0]["state"]


@cell("A.1", "abort a request by id", edit(lambda it: it.__setitem__("data", []), only="/v1/internal/requests"))
def abort(bed):
    it = bed.scripted(script=PACED)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(it.chat, "#long", max_tokens=2000)
        seen = bed.wait(lambda: bed.get(it, "/v1/internal/requests").json()["data"], 3)
        if not seen:
            for one in it.requests():  # so that it ends
                bed.ask(it, "DELETE", f"/v1/internal/requests/{one['id']}")
        expect(seen, "not listed")
        expect(bed.ask(it, "DELETE", f"/v1/internal/requests/{seen[0]['id']}").status == 200)
        expect(bed.wait(lambda: not it.requests(), 3) is not None, "it runs on")
        asked.result()


@cell("A.1", "reset the prefix cache", refuse("/v1/internal/reset_prefix_cache"))
def reset_prefix_cache(bed):
    it = bed.scripted("--block-size", "8")
    prompt = "words to be cached " * 20
    bed.complete(it, prompt, max_tokens=2)
    warm = bed.complete(it, prompt, max_tokens=2).json()["usage"]["prompt_cache_hit_tokens"]
    expect(bed.post(it, "/v1/internal/reset_prefix_cache", {}).status == 200)
    cold = bed.complete(it, prompt, max_tokens=2).json()["usage"]["prompt_cache_hit_tokens"]
    expect(warm > 0 and cold == 0, (warm, cold))


@cell("A.1", "drain and resume", refuse("/v1/internal/drain"))
def drain(bed):
    it = bed.scripted("--served-model-name", "drained")
    expect(bed.post(it, "/v1/internal/drain", {"timeout_ms": 2000}).status == 200)
    refused = bed.chat(it, "#fox").status, bed.get(it, "/health/ready").status
    expect(bed.post(it, "/v1/internal/resume", {}).status == 200)
    expect(refused == (503, 503), refused)
    expect(bed.chat(it, "#fox").status == 200, "it takes no requests again")


@cell("A.1", "start and stop a profile", edit(lambda it: it.__setitem__("traceEvents", []), only="/stop_profile"))
def profile(bed):
    it = bed.tiny()
    expect(bed.post(it, "/start_profile", {}).status == 200)
    bed.complete(it, "Once", max_tokens=6, ignore_eos=True)
    names = {one["name"] for one in bed.post(it, "/stop_profile", {}).json()["traceEvents"]}
    expect(len(names) > 4, names)


@cell("A.1", "/openapi.json", edit(lambda it: it.__setitem__("paths", {}), only="/openapi.json"))
def openapi(bed):
    it = bed.tiny()
    document = bed.get(it, "/openapi.json").json()
    expect(document["openapi"].startswith("3."))
    plain = [path for path, row in document["paths"].items() if "get" in row and "{" not in path and "events" not in path]
    expect(len(plain) > 6, plain)
    for path in plain:  # what it says is there
        expect(bed.get(it, path).status == 200, path)


@cell("A.1", "page at /", refuse("/"))
def page(bed):
    got = bed.get(bed.tiny(), "/")
    expect(got.status == 200 and got.headers["content-type"].startswith("text/html"), got.status)
    expect(b"<canvas" in got.content or b"<svg" in got.content, "no timeline")
    expect(b"textarea" in got.content or b"<input" in got.content, "no chat box")
    expect(b"/v1/internal/events" in got.content, "it is not live")
    return f"{len(got.content)} bytes"


# --- A.2 ------------------------------------------------------------------------------------------
@cell("A.2", "model: 404 names what is served", swap("deepseek-flash", "x"))
def unknown_model(bed):
    it = bed.scripted("--served-model-name", "deepseek-flash")
    got = bed.chat(it, "#fox", model="nope")
    expect(got.status == 404 and "deepseek-flash" in got.json()["error"]["message"], got.text)
    expect(bed.chat(it, "#fox", model="deepseek-flash").status == 200)


@cell("A.2", "messages: strings and text parts", refuse("/v1/chat"))
def parts(bed):
    it = bed.scripted()
    parts = [{"type": "text", "text": "#f"}, {"type": "text", "text": "ox"}]
    expect(bed.chat(it, "#fox").choice()["message"]["content"] == FOX)
    shown = bed.post(it, "/render", {"messages": [{"role": "user", "content": parts}]}).json()["prompt"]
    expect("#f" in shown and "ox" in shown, shown)


@cell("A.2", "prompt: string, list, ids, lists of ids", edit(lambda it: it.__setitem__("choices", it["choices"][:1])
                                                             if "choices" in it else None))
def prompts(bed):
    it = bed.scripted()
    ids = it.post("/tokenize", {"prompt": "#fox", "add_special_tokens": False}).json()["tokens"]
    for prompt, count in (("#fox", 1), (["#fox", "#fox"], 2), (ids, 1), ([ids, ids, ids], 3)):
        got = bed.complete(it, prompt, max_tokens=100).json()["choices"]
        expect([one["index"] for one in got] == list(range(count)), (prompt, got))
        expect(all(one["text"] == FOX for one in got), (prompt, got))


@cell("A.2", "max_tokens, max_completion_tokens wins", edit(lambda it: it.get("usage", {}).update(completion_tokens=9)))
def limits(bed):
    it = bed.scripted()
    counts = [bed.chat(it, "#long", max_tokens=limit, **more).json()["usage"]["completion_tokens"]
              for limit, more in ((5, {}), (..., {"max_completion_tokens": 3}), (5, {"max_completion_tokens": 2}))]
    expect(counts == [5, 3, 2], counts)


@cell("A.2", "temperature, top_p, seed, penalties", same_text())
def sampling(bed):
    it = bed.tiny()

    def text(**fields):
        return bed.complete(it, "In the beginning God created", max_tokens=40, **fields).choice()["text"]

    greedy = text(temperature=0)  # its second half says the same words again
    hot = [text(temperature=1.5, seed=seed) for seed in (1, 2)]
    expect(hot[0] != hot[1] and hot[0] == text(temperature=1.5, seed=1), "seed")
    expect(hot[0] != greedy, "temperature")
    expect(text(temperature=1.5, seed=1, top_p=1e-6) == greedy, "top_p")
    for penalty in ("presence_penalty", "frequency_penalty"):
        expect(text(temperature=0, **{penalty: 2}) != greedy, penalty)


@cell("A.2", "top_k, min_p, repetition_penalty", same_text())
def more_sampling(bed):
    it = bed.tiny()

    def text(**fields):
        return bed.complete(it, "Once there was", max_tokens=24, **fields).choice()["text"]

    greedy, hot = text(temperature=0), text(temperature=1.5, seed=1)
    expect(hot != greedy)
    expect(text(temperature=1.5, seed=1, top_k=1) == greedy, "top_k")
    expect(text(temperature=1.5, seed=1, min_p=1) == greedy, "min_p")
    expect(text(temperature=0, repetition_penalty=2) != greedy, "repetition_penalty")


@cell("A.2", "min_tokens, ignore_eos, stop_token_ids", edit(lambda it: it.get("usage", {}).update(completion_tokens=9)))
def ends(bed):
    it = bed.scripted()

    def usage(**fields):
        got = bed.complete(it, "#fox", **fields)
        return got.json()["usage"]["completion_tokens"]

    natural = usage(max_tokens=100)
    expect(usage(max_tokens=100, min_tokens=natural + 10) > natural + 10, "min_tokens")
    expect(usage(max_tokens=64, ignore_eos=True) == 64, "ignore_eos")
    ids = it.post("/tokenize", {"prompt": FOX, "add_special_tokens": False}).json()["tokens"]
    expect(usage(max_tokens=100, stop_token_ids=[ids[2]]) == 3, "stop_token_ids")


@cell("A.2", "include_stop_str_in_output, skip_special_tokens", same_text())
def shown(bed):
    it = bed.scripted()
    with_stop = bed.complete(it, "#fox", stop="fox", max_tokens=100, include_stop_str_in_output=True)
    without = bed.complete(it, "#fox", stop="fox", max_tokens=100)
    expect(with_stop.choice()["text"] == without.choice()["text"] + "fox")
    expect(bed.complete(it, "#special").choice()["text"] == "ab")
    expect(bed.complete(it, "#special", skip_special_tokens=False).choice()["text"] == "a<｜▁pad▁｜>b")


@cell("A.2", "stop: string or list", same_text(FOX))
def stops(bed):
    it = bed.scripted()
    for stop, cut in (("own fox", "The quick br"), (["lazy", "over"], "The quick brown fox jumps ")):
        expect(bed.chat(it, "#fox", stop=stop).choice()["message"]["content"] == cut)
        expect(bed.chat(it, "#fox", stop=stop, stream=True).answer().text[0] == cut)
    expect(bed.chat(it, "#fox", stop=["a"] * 16).status == 200 and bed.chat(it, "#fox", stop=["a"] * 17).status == 400)


@cell("A.2", "n, with the right index in a stream", edit(lambda it: [one.update(index=0) for one in it.get("choices", [])]))
def several(bed):
    it = bed.tiny()
    got = bed.complete(it, "Once", n=3, max_tokens=12, temperature=1, seed=3).json()["choices"]
    expect([one["index"] for one in got] == [0, 1, 2] and len({one["text"] for one in got}) == 3, got)
    flow = bed.complete(it, "Once", n=3, max_tokens=12, temperature=1, seed=3, stream=True).answer()
    expect(flow.text == {i: one["text"] for i, one in enumerate(got)}, flow.text)
    expect(bed.complete(it, "Once", n=17, max_tokens=1).status == 400, "n has no bound")


@cell("A.2", "logprobs, top_logprobs up to 20", edit(lambda it: [one.update(logprobs=None) for one in it.get("choices", [])]))
def logprobs(bed):
    it = bed.tiny()
    got = bed.chat(it, "What is 7 + 5?", max_tokens=6, logprobs=True, top_logprobs=20).choice()["logprobs"]["content"]
    for one in got:
        values = [best["logprob"] for best in one["top_logprobs"]]
        expect(len(values) == 20 and values == sorted(values, reverse=True) and abs(values[0] - one["logprob"]) < 1e-4)
        expect(sum(2.718281828 ** value for value in values) <= 1.001, "no probabilities")
    expect(bed.chat(it, "a", max_tokens=1, logprobs=True, top_logprobs=21).status == 400)


@cell("A.2", "stream, stream_options.include_usage", edit(lambda it: it.pop("usage", None)))
def usage_of_streams(bed):
    it = bed.scripted()
    got = bed.chat(it, "#fox", stream=True, stream_options={"include_usage": True}).events()
    expect(got[-1]["choices"] == [] and got[-1]["usage"]["completion_tokens"] > 5, got[-1])
    expect(all(one["usage"] is None for one in got[:-1]))
    got = bed.chat(it, "#fox", stream=True).events()
    expect(all("usage" not in one or not one["usage"] for one in got))


@cell("A.2", "tools, tool_choice auto and none",
      edit(lambda it: [one.get("message", {}).pop("tool_calls", None) for one in it.get("choices", [])]))
def tools(bed):
    it = bed.scripted()
    choice = bed.chat(it, "#two", tools=TOOLS).choice()
    calls = [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in choice["message"]["tool_calls"]]
    expect(calls == [("weather", {"city": 'Köln "am Rhein"\n'}), ("time", {"city": "東京"})], calls)
    choice = bed.chat(it, "#two", tools=TOOLS, tool_choice="none").choice()
    expect(not choice["message"].get("tool_calls") and "DSML" in choice["message"]["content"])
    for choice in ("required", {"type": "function", "function": {"name": "time"}}):
        expect(bed.chat(it, "#two", tools=TOOLS, tool_choice=choice).status == 400, "silently ignored")


@cell("A.2", "response_format json_object", same_text("no JSON"))
def json_object(bed):
    it = bed.tiny()
    for seed in range(3):
        choice = bed.chat(it, "Write a JSON object.", response_format={"type": "json_object"}, max_tokens=300,
                          temperature=1, seed=seed).choice()
        content = choice["message"]["content"]
        expect(content.lstrip().startswith("{"), content)
        if choice["finish_reason"] == "stop":
            json.loads(content)
    scripted = bed.scripted()
    expect(json.loads(bed.chat(scripted, "#json", response_format={"type": "json_object"}).choice()["message"]["content"])
           == {"city": "Berlin", "days": 3})


@cell("A.2", "thinking, reasoning_effort", swap("Reasoning Effort", "Effort"))
def thinking(bed):
    it = bed.tiny()

    def prompt(**fields):
        return bed.post(it, "/render", {"messages": [{"role": "user", "content": "Hi"}], **fields}).json()["prompt"]

    on, off = prompt(**ON), prompt(thinking={"type": "disabled"})
    expect(on.endswith("<think>") and off.endswith("</think>"), (on, off))
    low, high = prompt(**ON, reasoning_effort="low"), prompt(**ON, reasoning_effort="max")
    expect("Reasoning Effort: 50 " in low and "Reasoning Effort: 100 " in high, (low, high))
    expect(bed.chat(it, "Hi", **ON, reasoning_effort="gigantic", max_tokens=1).status == 400)


@cell("A.2", "reasoning_content in and out", swap("reasoning_content", "reasons"))
def reasoning(bed):
    it = bed.scripted()
    message = bed.chat(it, "#think", **ON).choice()["message"]
    expect((message["reasoning_content"], message["content"]) == ("First I think.", "Then I answer."), message)
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "because"},
               {"role": "user", "content": "c"}]
    kept = bed.post(it, "/render", {"messages": history, "tools": TOOLS, **ON}).json()["prompt"]
    dropped = bed.post(it, "/render", {"messages": history, **ON}).json()["prompt"]
    expect("because" in kept and "because" not in dropped, (kept, dropped))


@cell("A.2", "user, user_id and cache_salt", edit(lambda it: it.get("usage", {}).update(prompt_cache_hit_tokens=8)))
def salts(bed):
    it = bed.scripted("--block-size", "8")
    prompt = "a prompt of one tenant " * 20

    def hits(salt):
        return bed.complete(it, prompt, max_tokens=2, cache_salt=salt, user="u").json()["usage"]["prompt_cache_hit_tokens"]

    expect([hits("one"), hits("one") > 0, hits("two"), hits("two") > 0] == [0, True, 0, True])


@cell("A.2", "X-Request-Id out, in for correlation", without_header("x-request-id"))
def request_ids(bed):
    it = bed.scripted()
    got = [bed.chat(it, "#fox", headers={"X-Request-Id": "corr-17"}).headers.get("x-request-id") for _ in range(2)]
    expect(got[0] and got[1] and got[0] != got[1] and "corr-17" not in got, got)
    expect(bed.wait(lambda: "corr-17" in it.log(), 5), "not in the log")


@cell("A.2", "unknown fields: ignored and listed, --strict-fields", without_header("x-ignored-fields"))
def unknown_fields(bed):
    it = bed.scripted()
    got = bed.chat(it, "#fox", no_such_field=1)
    expect(got.status == 200 and any("no_such_field" in value for value in got.headers.values()), got.headers)
    strict = bed.scripted("--strict-fields")
    got = bed.chat(strict, "#fox", no_such_field=1)
    expect(got.status == 400 and got.json()["error"]["param"] == "no_such_field", got.text)


# --- A.3 ------------------------------------------------------------------------------------------
@cell("A.3", "id, object, created, model and index on every chunk", edit(lambda it: it.pop("created", None)))
def chunk_fields(bed):
    it = bed.scripted()
    got = bed.chat(it, "#fox", stream=True).events()
    expect(all({"id", "object", "created", "model", "choices"} <= set(one) for one in got))
    expect(all("index" in choice for one in got for choice in one["choices"]))
    expect(len({(one["id"], one["created"], one["model"]) for one in got}) == 1)


@cell("A.3", "role first, finish_reason last, usage, [DONE]", swap("data: [DONE]\n\n"))
def order(bed):
    it = bed.scripted()
    reply = bed.chat(it, "#fox", stream=True, stream_options={"include_usage": True})
    got = reply.events()
    expect(got[0]["choices"][0]["delta"]["role"] == "assistant")
    expect([one["choices"][0]["finish_reason"] for one in got[:-1]] == [None] * (len(got) - 2) + ["stop"])
    expect(reply.content.endswith(b"data: [DONE]\n\n") and got[-1]["usage"])


@cell("A.3", "finish_reason stop, length, tool_calls", swap('"length"', '"stop"'))
def finish(bed):
    it = bed.scripted()
    got = [bed.chat(it, text, **fields).choice()["finish_reason"] for text, fields in
           (("#fox", {}), ("#long", {"max_tokens": 3}), ("#two", {"tools": TOOLS}), ("#fox", {"stop": "fox"}))]
    expect(got == ["stop", "length", "tool_calls", "stop"], got)


@cell("A.3", "usage: prompt, completion, total", edit(lambda it: it.get("usage", {}).update(total_tokens=1)))
def usage(bed):
    it = bed.scripted()
    count = len(it.post("/tokenize", {"prompt": "#long"}).json()["tokens"])
    got = bed.complete(it, "#long", max_tokens=7).json()["usage"]
    expect((got["prompt_tokens"], got["completion_tokens"], got["total_tokens"]) == (count, 7, count + 7), (count, got))


@cell("A.3", "prompt_tokens_details.cached_tokens", swap("cached_tokens", "cached"))
def cached(bed):
    it = bed.scripted("--block-size", "8")
    prompt = "said before and again " * 20
    got = [bed.complete(it, prompt, max_tokens=2).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
           for _ in range(3)]
    expect(got[1] > 0 and got[1] == got[2] and got[1] % 8 == 0, got)
    return f"{got[1]} tokens"


@cell("A.3", "prompt_cache_hit_tokens and _miss_tokens", edit(lambda it: it.get("usage", {}).pop("prompt_cache_miss_tokens", 0)))
def hit_and_miss(bed):
    it = bed.scripted("--block-size", "8")
    for _ in range(2):
        got = bed.complete(it, "hits and misses " * 20, max_tokens=2).json()["usage"]
        expect(got["prompt_cache_hit_tokens"] + got["prompt_cache_miss_tokens"] == got["prompt_tokens"], got)
    expect(got["prompt_cache_hit_tokens"] > 0, got)


@cell("A.3", "completion_tokens_details.reasoning_tokens", swap("reasoning_tokens", "reasons"))
def reasoning_tokens(bed):
    it = bed.scripted()
    got = bed.chat(it, "#think", **ON).json()["usage"]
    expect(0 < got["completion_tokens_details"]["reasoning_tokens"] < got["completion_tokens"], got)
    got = bed.chat(it, "#fox").json()["usage"]
    expect(got["completion_tokens_details"]["reasoning_tokens"] == 0, got)


@cell("A.3", "timings: true", edit(lambda it: it.pop("timings", None)))
def timings(bed):
    it = bed.scripted(script=PACED)
    got = bed.chat(it, "#wait", timings=True).json()
    expect(any(value >= 500 for value in numbers(got["timings"])), got["timings"])
    expect("timings" not in bed.chat(it, "#fox", max_tokens=2).json(), "nobody asked")


def numbers(value):
    if isinstance(value, dict):
        return [number for one in value.values() for number in numbers(one)]
    if isinstance(value, list):
        return [number for one in value for number in numbers(one)]
    return [value] if isinstance(value, (int, float)) else []


@cell("A.3", "system_fingerprint", edit(lambda it: it.pop("system_fingerprint", None)))
def fingerprint(bed):
    one = bed.chat(bed.scripted(), "#fox").json()["system_fingerprint"]
    again = bed.chat(bed.scripted(), "#long", max_tokens=2).json()["system_fingerprint"]
    other = bed.chat(bed.scripted("--num-drafts", "2"), "#fox").json()["system_fingerprint"]
    expect(one and one == again and isinstance(other, str), (one, again, other))
    return one


@cell("A.3", "error envelope everywhere", swap('"type"', '"kind"'))
def envelope(bed):
    it = bed.tiny()
    for method, path, status in (("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405),
                                 ("POST", "/v1/chat/completions", 400)):
        got = bed.ask(it, method, path, content=b"{" if status == 400 else None)
        expect(got.status == status and {"message", "type", "param", "code"} <= set(got.json()["error"]), got.text)
    big = bed.ask(it, "POST", "/v1/completions", content=b'{"prompt":"' + b"a" * (33 << 20) + b'"}')
    expect(big.status == 413 and big.json()["error"]["code"] == "payload_too_large", big.text[:200])


@cell("A.3", "Retry-After on 429 and 503", without_header("retry-after"))
def retry_after(bed):
    it = bed.scripted("--max-num-seqs", "1", "--max-queued-requests", "1", script=PACED)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: bed.chat(it, "#wait"), range(8)))
    refused = [one for one in got if one.status in (429, 503)]
    expect(refused and all(int(one.headers["retry-after"]) >= 1 for one in refused), [one.status for one in got])


@cell("A.3", "comments as keep-alive", swap(": keep-alive\n\n"))
def comments(bed):
    it = bed.scripted("--keep-alive-interval", "100ms", script=PACED)
    got = bed.chat(it, "#wait", stream=True)
    expect(got.content.count(b": keep-alive\n\n") >= 2 and got.answer().text[0] == "x", got.text[:200])
