"""D.4: ids, cancellation, leaks."""

import concurrent.futures
import random
import threading
import time

import httpx
import pytest

from checks import answer_of
from service import FULL, PATIENCE, chat_body, wait_for
from wire import Raw, post, stream

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def together(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_d54_one_request_id_on_many_requests(server):
    def ask(_):
        with server.client() as client:
            return client.post(CHAT, json=chat_body("#fox"), headers={"X-Request-Id": "same"})

    replies = together(10, ask)
    assert all(it.status_code == 200 for it in replies)
    assert len({it.json()["choices"][0]["message"]["content"] for it in replies}) == 1
    assert len({it.json()["id"] for it in replies}) == 10
    ids = {it.headers["x-request-id"] for it in replies}
    assert len(ids) == 10 and "same" not in ids


def test_d55_a_duplicate_id_replaces_nobody(serve):
    it = serve("--max-num-seqs", "4", "--log-requests", "meta")
    headers = {"X-Request-Id": "twin"}

    def ask(i):
        return stream(it, CHAT, chat_body("#long", max_tokens=50 + i), headers=headers)

    flows = together(6, ask)
    for i, flow in enumerate(flows):
        assert flow.finish == {0: "length"}
        assert flow.text[0].startswith(flows[0].text[0])
    assert len({flow.chunks[0]["id"] for flow in flows}) == 6


def leave(server, kind, draw):
    """One request whose client leaves somehow, at some moment."""
    text = draw.choice(["#fox", "#long", "#any", "#two", "#hold", "prompt " * draw.randrange(1, 300)])
    body = chat_body(text, stream=draw.random() < 0.7, n=draw.choice([1, 1, 1, 3]),
                     max_tokens=draw.choice([1, 30, 2000]))
    raw = Raw(server.port)
    data = post(CHAT, body)
    raw.send(data[:draw.randrange(len(data))] if kind == "half" else data)
    time.sleep(draw.choice([0, 0.001, 0.005, 0.02, 0.06]))
    if kind == "some":
        raw.socket.settimeout(0.2)
        try:
            raw.socket.recv(draw.choice([1, 100, 4000]))
        except OSError:
            pass
    if kind == "delete":
        for it in server.requests()[:3]:
            with server.client() as client:
                client.delete(f"/v1/internal/requests/{it['id']}")
    if draw.random() < 0.5:
        raw.reset()
    else:
        raw.close()


def test_d57_a_thousand_random_cancels_leak_nothing(serve):
    it = serve("--max-num-seqs", "8", "--block-size", "8", "--num-kv-blocks", "600",
               "--max-model-len", "2400", "--chunk-size", "64", "--num-drafts", "2")
    count = 1000
    before = it.metrics()

    def one(i):
        draw = random.Random(1000 + i)
        leave(it, draw.choice(["half", "now", "some", "some", "delete"] if i % 50 == 0 else
                              ["half", "now", "some", "some"]), draw)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(count)))
    wait_for(lambda: not it.is_at_rest(), "not at rest", 4 * PATIENCE)
    after = it.metrics()
    assert sum(after[("request_success_total", ("finished_reason", reason))] -
               before[("request_success_total", ("finished_reason", reason))]
               for reason in ("stop", "length", "abort", "tool_calls", "error", "resource")) > count / 4
    assert after[("request_success_total", ("finished_reason", "error"))] == \
        before[("request_success_total", ("finished_reason", "error"))]
    assert answer_of(it.chat("#fox"))[0]["finish_reason"] == "stop"


def test_d58_clients_that_leave_the_queue_are_never_prefilled(serve):
    it = serve("--max-num-seqs", "2", script={**SLOW})
    runners = [Raw(it.port) for _ in range(2)]
    for raw in runners:  # not streamed: whoever reads nothing would be paused
        raw.send(post(CHAT, chat_body("#long", max_tokens=8000)))
    wait_for(lambda: it.stats()["running"] == 2, "two run")
    before = it.metrics()["prompt_tokens_total"]
    queued = [Raw(it.port) for _ in range(50)]
    for raw in queued:
        raw.send(post(CHAT, chat_body("queued " * 20, stream=True)))
    wait_for(lambda: it.metrics()["num_requests_waiting"] == 50, "50 wait")
    for raw in queued:
        raw.reset()
    wait_for(lambda: it.metrics()["num_requests_waiting"] == 0, "nobody waits")
    assert it.metrics()["prompt_tokens_total"] == before
    assert it.metrics()[("request_aborts_total", ("phase", "queued"))] >= 50
    for raw in runners:
        raw.reset()


SLOW = {"step_ms": 4, "answers": [{"when": "#fox", "say": "The quick brown fox."},
                                  {"when": "#long", "then": "go on"}], "otherwise": {"say": "OK."}}


def test_d63_a_cancelled_prefill_does_not_spoil_the_prefix(serve):
    flags = ("--block-size", "8", "--chunk-size", "32", "--max-num-seqs", "4")
    it = serve(*flags, script=SLOW)
    prompt = "#long " + "some words that fill blocks " * 60
    body = {"model": it.model(), "prompt": prompt, "max_tokens": 40, "temperature": 0}
    for pause in (0.0, 0.01, 0.03, 0.06, 0.1):
        with Raw(it.port) as raw:
            raw.send(post(PLAIN, {**body, "stream": True}))
            time.sleep(pause)
            raw.reset()
    again, _ = answer_of(it.post(PLAIN, body))
    cold = serve(*flags, "--no-prefix-cache", script=SLOW)
    assert again["text"] == answer_of(cold.post(PLAIN, body))[0]["text"]
    answer_of(it.post(PLAIN, body))  # what a cancelled request had computed may be gone by now
    assert answer_of(it.post(PLAIN, body))[1]["prompt_cache_hit_tokens"] > 0


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_d64_no_output_behind_a_cancel(serve, depth):
    it = serve("--depth", str(depth), "--max-num-seqs", "4", script=SLOW)
    for tokens in (1, 2, 3, 4, 7):
        with Raw(it.port) as raw:
            raw.send(post(CHAT, chat_body("#long", max_tokens=5000, stream=True)))
            status, headers = raw.head()
            assert status == 200
            for _ in range(tokens):
                raw.chunk()
            mine = wait_for(it.requests, "a request")[0]["id"]
            with it.client() as client:
                reply = client.delete(f"/v1/internal/requests/{mine}")
            assert reply.status_code == 200, reply.text
            rest = b""
            while piece := raw.chunk():
                rest += piece
            assert len(rest) < 40_000  # it ended, and did not go on to 5000 tokens
        wait_for(lambda: not it.is_at_rest(), "at rest")


# Nothing is written while a prompt is at work, nor between two tokens of a script this slow.
STILL = {"step_ms": 400, "answers": [{"when": "#wait", "say": "x", "then": "go on", "first_ms": 2000},
                                     {"when": "#long", "then": "go on"}], "otherwise": {"say": "OK."}}


def is_queued(it):
    return it.stats()["queued"] == 1


def is_in_prefill(it):
    return any(one["state"] == "prefill" for one in it.requests())


def has_tokens(it):
    return any(one["output_tokens"] > 0 for one in it.requests())


@pytest.mark.parametrize("leaving", ["reset", "close", "half_close"])
@pytest.mark.parametrize("when, text, is_streamed, is_there", [
    ("queued", "#long", False, is_queued), ("queued stream", "#long", True, is_queued),
    ("prefill", "#wait", False, is_in_prefill), ("stream in prefill", "#wait", True, is_in_prefill),
    ("whole answer", "#long", False, has_tokens), ("stream at rest", "#long", True, has_tokens)])
def test_a_client_that_leaves_while_nothing_is_written_is_noticed(serve, leaving, when, text, is_streamed, is_there):
    """However it closes its connection: what it asked for is cancelled, its gauges fall, its KV comes back."""
    it = serve("--max-num-seqs", "1", script=STILL)
    seen = ("http_requests_total", ("handler", CHAT), ("method", "POST"), ("status", "499"))
    before = it.metrics().get(seen, 0)
    runner = Raw(it.port)
    if is_there is is_queued:
        runner.send(post(CHAT, chat_body("#long", max_tokens=5000)))
        wait_for(lambda: it.stats()["running"] == 1, "one runs")
    gone = Raw(it.port)
    gone.send(post(CHAT, chat_body(text, stream=is_streamed, max_tokens=5000)))
    wait_for(lambda: is_there(it), when)
    getattr(gone, leaving)()
    left = 1 if is_there is is_queued else 0
    wait_for(lambda: len(it.requests()) == left, "it is gone")
    assert it.metrics()[seen] == before + 1
    runner.reset()
    gone.close()
    wait_for(lambda: not it.is_at_rest(), "at rest")


def test_a_client_that_gives_up_closes_its_connection(serve):
    it = serve("--max-num-seqs", "2", script=SLOW)
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=it.url, timeout=0.3) as client:
        client.post(CHAT, json=chat_body("#long", max_tokens=8000))
    wait_for(lambda: it.metrics()["num_requests_running"] == 0, "nobody runs")
    assert it.metrics()["generation_tokens_total"] < 4000


def test_pipelined_requests_of_a_client_that_left_are_not_begun(serve):
    it = serve("--max-num-seqs", "4", script=SLOW)

    def answers():
        return sum(value for name, value in it.metrics().items() if name[0] == "http_requests_total" and
                   ("handler", CHAT) in name[1:])

    with Raw(it.port) as raw:
        before = answers()
        raw.send(post(CHAT, chat_body("#long", max_tokens=8000)), *[post(CHAT, chat_body("#fox"))] * 3)
        wait_for(lambda: has_tokens(it), "the first runs")
        raw.half_close()
        wait_for(lambda: not it.requests(), "it is gone")
        assert raw.is_closed() and not raw.buffer
    assert answers() == before + 1


def test_a_connection_that_ends_behind_its_answers_is_nothing_special(serve):
    it = serve(script=SLOW)
    gone = ("http_requests_total", ("handler", CHAT), ("method", "POST"), ("status", "499"))
    before = it.metrics().get(gone, 0)
    with Raw(it.port) as raw:
        for _ in range(2):
            raw.send(post(CHAT, chat_body("#fox")))
            assert raw.response()[0] == 200
        raw.half_close()
        assert raw.is_closed()
    assert it.metrics().get(gone, 0) == before


def test_many_connections_that_say_nothing(server):
    idle = [Raw(server.port) for _ in range(200 if not FULL else 2000)]
    assert answer_of(server.chat("#fox"))[0]["finish_reason"] == "stop"
    threads = [threading.Thread(target=it.close) for it in idle]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
