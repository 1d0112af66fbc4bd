"""Ten minutes of mixed load: memory flat, accounts exact, health always quick. Only on request."""

import concurrent.futures
import os
import random
import statistics
import threading
import time

import pytest

from script import TOOLS, shared_script
from service import FULL, chat_body, wait_for
from test_reports_transport import memory_of
from wire import Raw, post

CHAT = "/v1/chat/completions"
SECONDS = float(os.environ.get("DEEPINFER_SOAK_SECONDS", "600"))


@pytest.mark.skipif(not FULL, reason="takes ten minutes: DEEPINFER_TEST_FULL=1")
def test_mixed_load(own):
    it = own("--max-num-seqs", "16", "--block-size", "8", "--num-kv-blocks", "1500", "--max-model-len", "2048",
             "--max-queued-requests", "64", "--num-drafts", "2", "--stats-interval", "0", "--log-requests", "off",
             script=shared_script(step_ms=1))
    ends = time.monotonic() + SECONDS
    answers = {"count": 0}
    lock = threading.Lock()

    def load(seed):
        draw = random.Random(seed)
        while time.monotonic() < ends:
            body = chat_body(draw.choice(["#fox", "#long", "#any", "#two", "#world", "w " * 300]), tools=TOOLS,
                             max_tokens=draw.choice([1, 20, 100]), stream=draw.random() < 0.5, temperature=1)
            raw = Raw(it.port)
            try:
                raw.send(post(CHAT, body))
                if draw.random() < 0.25:
                    time.sleep(draw.random() * 0.05)
                    raw.reset()
                    continue
                status, _, _ = raw.response()
                with lock:
                    answers[status] = answers.get(status, 0) + 1
            finally:
                raw.close()

    latencies, memory = [], []

    def watch():
        while time.monotonic() < ends:
            began = time.monotonic()
            with Raw(it.port) as raw:
                raw.send(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert raw.response()[0] == 200
            latencies.append(time.monotonic() - began)
            memory.append((time.monotonic(), memory_of(it.pid)))
            time.sleep(0.05)

    with concurrent.futures.ThreadPoolExecutor(13) as pool:
        for one in [pool.submit(watch), *[pool.submit(load, seed) for seed in range(12)]]:
            one.result()
    wait_for(lambda: not it.is_at_rest(), "at rest")
    metrics = it.metrics()
    ended = metrics["request_success_total"]
    assert metrics[("request_success_total", ("finished_reason", "error"))] == 0
    assert metrics["e2e_request_latency_seconds_count"] == ended
    assert set(answers) <= {"count", 200, 429}, answers
    latencies.sort()
    assert latencies[int(len(latencies) * 0.99)] < 0.05, latencies[-20:]
    half = memory[len(memory) // 2:]
    early = statistics.median(value for _, value in half[:len(half) // 4])
    late = statistics.median(value for _, value in half[-len(half) // 4:])
    assert late - early < 4 << 20, (early, late)
    it.check_rest()
