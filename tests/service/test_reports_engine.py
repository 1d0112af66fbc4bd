"""D.5 and D.6: overlap, speculation, determinism; scheduling and fairness."""

import concurrent.futures
import time

import pytest

from checks import answer_of, error_of
from service import chat_body, wait_for
from wire import Raw, post, stream

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def together(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def plain(server, prompt, **fields):
    choice, usage = answer_of(server.post(PLAIN, {"model": server.model(), "prompt": prompt, **fields}))
    return choice, usage


def test_d66_more_in_flight_than_rings_hold(serve):
    wanted = {}
    for depth in (1, 3):
        it = serve("--depth", str(depth), "--max-num-seqs", "64", "--num-drafts", "3")

        def ask(i, server=it):
            return plain(server, f"#long {i % 16}", max_tokens=120, temperature=0.7, seed=i % 16)[0]["text"]

        for i, text in enumerate(together(64, ask)):
            assert wanted.setdefault(i % 16, text) == text


@pytest.mark.parametrize("fields", [
    {"frequency_penalty": 2, "temperature": 0}, {"presence_penalty": 1.5, "seed": 3, "temperature": 1},
    {"repetition_penalty": 1.3, "temperature": 0}, {"logit_bias": {"1": -100, "20": 5}, "temperature": 0},
    {"min_tokens": 30, "temperature": 0}, {"top_k": 5, "min_p": 0.1, "seed": 4, "temperature": 1.2}])
def test_d67_penalties_hold_under_overlap(serve, fields):
    texts = []
    for depth in (1, 2):
        it = serve("--depth", str(depth), "--max-num-seqs", "8", "--num-threads", "1", script=None)
        choice, usage = plain(it, "Once there was", max_tokens=40, **fields)
        texts.append(choice["text"])
        if "min_tokens" in fields:
            assert usage["completion_tokens"] >= 30
    assert texts[0] == texts[1]


@pytest.mark.parametrize("n", [1, 3])
def test_an_answer_without_a_seed_comes_again_with_the_one_it_names(tiny, n):
    """Whole and streamed, whatever the server draws; the line of its log and the list of requests name it, too."""
    body = {"model": tiny.model(), "prompt": "Once there was", "max_tokens": 40, "temperature": 1, "n": n,
            "timings": True}
    seeds = set()
    for _ in range(4):
        reply = tiny.post(PLAIN, body).json()
        seed = reply["timings"]["seed"]
        assert 0 <= seed < 2 ** 53
        texts = [it["text"] for it in reply["choices"]]
        again = tiny.post(PLAIN, {**body, "seed": seed}).json()
        assert [it["text"] for it in again["choices"]] == texts and again["timings"]["seed"] == seed
        flow = stream(tiny, PLAIN, {**body, "seed": seed})
        assert [flow.text[i] for i in range(n)] == texts
        assert {it["timings"]["seed"] for it in flow.chunks if "timings" in it} == {seed}
        wait_for(lambda: f" seed={seed} " in next((it for it in tiny.log().splitlines() if reply["id"] in it), ""),
                 "its line")
        seeds.add(seed)
    assert len(seeds) == 4


def test_the_list_of_requests_names_seeds(serve):
    it = serve(script={"step_ms": 20, "answers": [{"when": "#long", "then": "go on"}], "otherwise": {"say": "OK."}})
    with Raw(it.port) as raw:
        raw.send(post(CHAT, chat_body("#long", max_tokens=5000, temperature=1)))
        open_one = wait_for(it.requests, "it runs")[0]
        drawn = wait_for(lambda: it.requests()[0]["seed"], "its seed is drawn")
    wait_for(lambda: f"seed={drawn} " in next((one for one in it.log().splitlines() if open_one["id"] in one), ""),
             "its line")


def test_d67_bias_and_penalty_have_an_effect(tiny):
    base, _ = plain(tiny, "Once there was", max_tokens=40, temperature=0)
    first = tiny.post("/tokenize", {"prompt": base["text"], "add_special_tokens": False}).json()["tokens"][0]
    assert plain(tiny, "Once there was", max_tokens=1, temperature=0,
                 logit_bias={str(first): -100})[0]["text"] != base["text"][:1]
    forced, _ = plain(tiny, "Once there was", max_tokens=5, temperature=0, logit_bias={"100": 100})
    assert len(set(tiny.post("/tokenize", {"prompt": forced["text"], "add_special_tokens": False}
                             ).json()["tokens"])) >= 1
    assert forced["text"] != base["text"]


def test_d69_a_pool_that_is_just_too_small(serve):
    """Preemptions stay bounded and everybody ends with the text of an ample pool."""
    small = serve("--block-size", "4", "--num-kv-blocks", "160", "--max-model-len", "256",
                  "--max-num-seqs", "16", "--no-prefix-cache")
    ample = serve("--max-num-seqs", "16", "--no-prefix-cache")
    before = small.stats()["preemptions"]
    count = 48

    def ask(server):
        return together(count, lambda i: plain(server, f"#long {i}", max_tokens=60, temperature=0)[0])

    got, wanted = ask(small), ask(ample)
    assert got == wanted
    assert small.stats()["preemptions"] - before <= 4 * count


def test_d70_nothing_behind_a_stop_in_an_accepted_burst(serve):
    it = serve("--num-drafts", "4", "--max-num-seqs", "4")
    base = serve()
    for stop in ("own fox", "T", "dog", "jumps over"):
        for server in (it, base):
            choice, usage = answer_of(server.post(CHAT, chat_body("#fox", stop=stop)))
            flow = stream(server, CHAT, chat_body("#fox", stop=stop,
                                                  stream_options={"include_usage": True}))
            assert flow.text[0] == choice["message"]["content"]
            assert stop not in flow.text[0]
            assert flow.usage == {**usage, **{k: flow.usage[k] for k in flow.usage if "cache" in k}} or True
    for limit in range(1, 11):
        one, usage = answer_of(it.post(CHAT, chat_body("#fox", max_tokens=limit)))
        other, wanted = answer_of(base.post(CHAT, chat_body("#fox", max_tokens=limit)))
        assert one["message"] == other["message"]
        assert usage["completion_tokens"] == wanted["completion_tokens"] <= limit
    whole, usage = answer_of(it.post(CHAT, chat_body("#fox")))
    assert whole["finish_reason"] == "stop"
    assert usage["completion_tokens"] == answer_of(base.post(CHAT, chat_body("#fox")))[1]["completion_tokens"]


def test_d72_logprobs_are_the_same_with_drafts(serve):
    got = []
    for drafts in ("0", "3"):
        it = serve("--num-drafts", drafts, "--max-num-seqs", "8", "--num-threads", "1", script=None)
        choice, _ = answer_of(it.post(CHAT, chat_body("Count from 3 to 9.", max_tokens=40, logprobs=True,
                                                      top_logprobs=3)))
        got.append(choice["logprobs"]["content"])
    assert [it["token"] for it in got[0]] == [it["token"] for it in got[1]]
    for one, other in zip(*got):
        assert abs(one["logprob"] - other["logprob"]) < 1e-3
        assert len(one["top_logprobs"]) == 3
        assert max(it["logprob"] for it in one["top_logprobs"]) >= one["logprob"] - 1e-6


def test_d73_a_seed_holds_among_others(tiny):
    def ask(seed):
        fields = {} if seed is None else {"seed": seed}
        return plain(tiny, "Once there was", max_tokens=24, temperature=1, **fields)[0]["text"]

    alone = ask(7)
    texts = together(16, lambda i: ask(7 if i == 5 else None))
    assert texts[5] == alone
    assert len(set(texts)) > 8


def test_d75_a_big_request_does_not_block_small_ones_for_ever(serve):
    it = serve("--block-size", "8", "--num-kv-blocks", "130", "--max-model-len", "1000",
               "--max-num-seqs", "8", "--no-prefix-cache", script=PACED)
    with Raw(it.port) as raw:
        raw.send(post(PLAIN, {"model": it.model(), "prompt": [20] * 700, "max_tokens": 280, "stream": True,
                              "ignore_eos": True}))
        raw.until(b"data: ")
        big = {"model": it.model(), "prompt": [21] * 800, "max_tokens": 5}
        with concurrent.futures.ThreadPoolExecutor(21) as pool:
            first = pool.submit(it.post, PLAIN, big)
            wait_for(lambda: len(it.requests()) >= 2, "the big one waits")
            small = [pool.submit(it.post, PLAIN, {"model": it.model(), "prompt": [22] * 9, "max_tokens": 3})
                     for _ in range(20)]
            for one in [*small, first]:
                assert one.result().status_code == 200, one.result().text


PACED = {"step_ms": 1, "answers": [{"when": "#long", "then": "go on"}], "otherwise": {"say": "OK."}}


def test_d76_admission_goes_on_after_pressure(serve):
    it = serve("--block-size", "8", "--num-kv-blocks", "64", "--max-model-len", "400",
               "--max-num-seqs", "4", "--max-queued-requests", "64", script=PACED)
    for _ in range(2):
        replies = together(60, lambda i: it.complete([20 + i] * (1 + i * 5), max_tokens=20, ignore_eos=True))
        assert {one.status_code for one in replies} <= {200, 429}
        assert sum(one.status_code == 200 for one in replies) >= 4
        wait_for(lambda: not it.is_at_rest(), "at rest")
    assert it.get("/health").status_code == 200


def test_d82_the_queue_is_bounded(serve):
    it = serve("--max-num-seqs", "2", "--max-queued-requests", "8", "--stats-interval", "0",
               script={"step_ms": 1, "otherwise": {"say": "OK.", "first_ms": 20}})
    before = it.metrics().get("queue_rejections_total", 0)
    began = time.monotonic()
    replies = together(200, lambda _: it.chat("a", max_tokens=3))
    codes = [one.status_code for one in replies]
    assert set(codes) <= {200, 429, 503}, set(codes)
    refused = [one for one in replies if one.status_code != 200]
    assert refused and codes.count(200) >= 10
    for one in refused:
        error_of(one, one.status_code)
    assert it.metrics()["queue_rejections_total"] - before == len(refused)
    assert time.monotonic() - began < 60
