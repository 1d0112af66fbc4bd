"""D.7: metrics, health, lifecycle, HTTP transport."""

import concurrent.futures
import re
import signal
import socket
import time

import pytest

from checks import answer_of, error_of
from script import shared_script
from service import PATIENCE, Process, chat_body, wait_for
from wire import Answer, Raw, events, frames, get, post

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
SLOW = {"step_ms": 10, "answers": [{"when": "#long", "then": "go on"}], "otherwise": {"say": "OK."}}


def test_d84_gauges_fall_to_zero(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: server.chat("#fox"), range(32)))
    wait_for(lambda: not server.is_at_rest(), "at rest")
    metrics = server.metrics()
    for name in ("num_requests_running", "num_requests_waiting", "inflight_steps", "inflight_tokens",
                 "kv_held_blocks", "client_chunks_pending"):
        assert metrics[name] == 0, name


def test_d85_two_hundred_disconnects_leave_no_request_in_flight(server):
    for i in range(200):
        raw = Raw(server.port)
        raw.send(post(CHAT, chat_body("#long", stream=bool(i % 2), max_tokens=3000)))
        if i % 6 == 1:
            raw.socket.recv(10)
        raw.reset()
    wait_for(lambda: server.metrics()["http_requests_in_flight"] <= 1, "none in flight")


def test_d87_prefix_hits_are_counted_at_the_first_admission(serve):
    it = serve("--block-size", "4", "--num-kv-blocks", "96", "--max-model-len", "256",
               "--max-num-seqs", "8")
    before = it.metrics()
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(lambda i: it.complete([30] * 40 + [40 + i % 3], max_tokens=40,
                                                      ignore_eos=True), range(24)))
    assert all(one.status_code == 200 for one in replies)
    after = it.metrics()
    moved = {name: after[name] - before[name] for name in
             ("prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total")}
    assert moved["prompt_tokens_total"] == 24 * 41
    assert moved["prefix_cache_queries_total"] <= moved["prompt_tokens_total"]
    assert moved["prefix_cache_hits_total"] <= moved["prefix_cache_queries_total"]
    assert moved["prefix_cache_hits_total"] == \
        sum(one.json()["usage"]["prompt_cache_hit_tokens"] for one in replies)


def test_d90_a_port_in_use_is_said_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        it = Process("serve", "--port", port, "--actor-port", 0)
        began = time.monotonic()
        try:
            assert it.wait() == 4
            assert str(port) in it.log() and "127.0.0.1" in it.log()
            assert "Ready" not in it.log()
            assert time.monotonic() - began < 10
        finally:
            it.kill()


def test_d90_the_port_answers_while_the_model_is_not_there(own):
    """Liveness first, readiness with the model: however fast that is, never the other way round."""
    it = own(wait=False, script=None)
    seen = []
    wait_for(lambda: re.search(r"(http://\S+?:(\d+))", it.log()), "it listens")
    it.wait_until_ready()
    for path in ("/health/live", "/health/ready", "/health"):
        seen.append(it.get(path).status_code)
    assert seen == [200, 200, 200]


def test_d91_sigterm_lets_running_requests_end(own):
    it = own("--shutdown-timeout", "20s", script=SLOW)
    with Raw(it.port) as raw, Raw(it.port) as idle:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=60)))
        raw.head()
        raw.chunk()
        it.signal(signal.SIGTERM)

        def is_refused():
            idle.send(get("/health/ready"))
            status, headers, _ = idle.response()
            return status == 503

        wait_for(is_refused, "readiness is gone")
        idle.send(post(CHAT, chat_body("a")))
        status, headers, body = idle.response()
        assert status == 503 and int(headers["retry-after"]) >= 1 and b"draining" in body
        data = b""
        while piece := raw.chunk():
            data += piece
        assert data.endswith(b"data: [DONE]\n\n")
        ended = time.monotonic()
    assert it.wait() == 0
    assert time.monotonic() - ended < 10  # as soon as it is idle, not after the whole grace


def test_d91_a_request_that_outlives_the_grace_gets_an_error(own):
    it = own("--shutdown-timeout", "300ms", script=SLOW)
    with Raw(it.port) as raw:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=8000)))
        raw.head()
        raw.chunk()
        it.signal(signal.SIGTERM)
        data = b""
        while piece := raw.chunk():
            data += piece
    assert frames(data)[-1] != b"[DONE]"
    assert b'"server_shutdown"' in frames(data)[-1], frames(data)[-1]
    assert it.wait() == 0


def test_d91_a_second_signal_ends_open_requests_with_an_error(own):
    """Streams by an event, whole answers by their status; a client that reads nothing holds up nobody."""
    it = own("--shutdown-timeout", "60s", script=SLOW)
    with Raw(it.port) as raw, Raw(it.port) as whole, Raw(it.port, receive_buffer=4096) as deaf:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=8000)))
        raw.head()
        raw.chunk()
        whole.send(post(CHAT, chat_body("#long", max_tokens=8000)))
        deaf.send(post(CHAT, chat_body("#long", stream=True, logprobs=True, top_logprobs=20, max_tokens=8000)))
        wait_for(lambda: it.stats()["running"] == 3, "three run")
        it.signal(signal.SIGINT)
        wait_for(lambda: it.get("/health/ready").status_code == 503, "it drains")
        it.signal(signal.SIGTERM)
        data = b""
        while piece := raw.chunk():
            data += piece
        assert b'"server_shutdown"' in frames(data)[-1], frames(data)[-1]
        status, _, body = whole.response()
        assert status == 503 and b'"server_shutdown"' in body, body
        assert it.wait() == 130


def test_d93_an_idle_connection_is_kept(serve):
    it = serve("--idle-timeout", "90s")
    with Raw(it.port) as raw:
        raw.send(get("/health"))
        raw.response()
        time.sleep(2.5)
        raw.send(post(CHAT, chat_body("#fox")))
        status, headers, _ = raw.response()
        assert status == 200 and headers.get("connection", "keep-alive").lower() == "keep-alive"
        raw.send(get("/health", "Connection: close"))
        _, headers, _ = raw.response()
        assert headers["connection"].lower() == "close" and raw.is_closed()
    short = serve("--idle-timeout", "300ms")
    with Raw(short.port) as raw:
        raw.send(get("/health"))
        raw.response()
        assert raw.is_closed(10)


def test_d94_pipelined_requests_are_answered_in_order(server):
    with Raw(server.port) as raw:
        raw.send(get("/health") + get("/v1/models") + post(CHAT, chat_body("#fox")) + get("/version"))
        bodies = [raw.response() for _ in range(4)]
    assert [status for status, _, _ in bodies] == [200] * 4
    assert b'"data"' in bodies[1][2] and b"quick brown" in bodies[2][2] and b"version" in bodies[3][2]
    with Raw(server.port) as raw:
        raw.send(post(CHAT, chat_body("#fox", stream=True)) + get("/nowhere") + get("/health"))
        assert Answer(events(raw.response()[2])).finish == {0: "stop"}
        assert raw.response()[0] == 404 and raw.response()[0] == 200


def test_d96_chunked_bodies(server):
    body = post(CHAT, chat_body("#fox"))
    data = body.split(b"\r\n\r\n", 1)[1]
    head = post(CHAT, b"", "Transfer-Encoding: chunked")
    one_byte = b"".join(b"1\r\n%c\r\n" % it for it in data)
    for chunks in (one_byte + b"0\r\n\r\n",
                   b"%x;ext=1\r\n" % len(data) + data + b"\r\n0\r\nTrailer: a\r\n\r\n"):
        with Raw(server.port) as raw:
            raw.send(head)
            for begin in range(0, len(chunks), 700):
                raw.send(chunks[begin:begin + 700])
            assert raw.response()[0] == 200
            raw.send(get("/health"))
            assert raw.response()[0] == 200
    for broken in (b"zz\r\n", b"ffffffffffffffffff\r\n", b"-1\r\n"):
        with Raw(server.port) as raw:
            raw.send(head, broken)
            assert raw.response()[0] in (400, 413) and raw.is_closed()


def test_d97_edges_of_http(server):
    with Raw(server.port) as raw:  # Expect: 100-continue
        body = post(CHAT, chat_body("#fox"), "Expect: 100-continue")
        head, data = body.split(b"\r\n\r\n", 1)
        raw.send(head + b"\r\n\r\n")
        assert raw.head()[0] == 100
        raw.send(data)
        assert raw.response()[0] == 200
        raw.send(get("/health", method="HEAD"))
        status, headers, _ = raw.response(is_head=True)
        assert status == 200 and int(headers["content-length"]) > 0
        raw.send(get(CHAT, method="OPTIONS"))
        status, headers, _ = raw.response()
        assert status in (200, 204, 405) and "POST" in headers.get("allow", "POST")
        raw.send(get("/health", method="BREW"))
        assert raw.response()[0] in (400, 405, 501)
    with Raw(server.port) as raw:  # HTTP/1.0: closed at the end, no chunks
        raw.send(get("/health", version="1.0"))
        status, headers, _ = raw.response()
        assert status == 200 and "transfer-encoding" not in headers and raw.is_closed()
    with Raw(server.port) as raw:
        raw.send(post(CHAT, chat_body("#fox", stream=True), version="1.0"))
        status, headers, body = raw.response()
        assert status == 200 and "transfer-encoding" not in headers
        assert body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("request_bytes", [
    b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"nonsense\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"GET /%00%ff%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET " + b"/a" * 40000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_d97_what_is_no_http(server, request_bytes):
    with Raw(server.port) as raw:
        raw.send(request_bytes)
        try:
            status, _, body = raw.response()
        except (EOFError, ConnectionError):
            return  # closed without a word: also right
        assert status in (400, 404, 411, 413, 414, 431, 501, 505), (status, body[:200])
        assert raw.is_closed()


def test_d99_keys(serve):
    it = serve("--api-key", "alice=secret one", "--api-key", "plain", key="plain")
    assert answer_of(it.chat("#fox"))[0]["finish_reason"] == "stop"

    def ask(method, path, *headers):
        with Raw(it.port) as raw:
            raw.send(get(path, *headers, method=method) if method != "POST" else post(path, {}, *headers))
            return raw.response(is_head=method == "HEAD")[0]

    keyless = {("GET", path): ask("GET", path) for path in
               ("/v1/models", "/v1/models/scripted", "/metrics", "/version", "/v1/internal/requests",
                "/v1/internal/stats", "/debug/trace?steps=4", "/v1/internal/events", "/invocations",
                "/openapi.json", "/nowhere")}
    keyless |= {("POST", path): ask("POST", path) for path in
                (CHAT, PLAIN, "/chat/completions", "/completions", "/beta/completions", "/tokenize",
                 "/detokenize", "/render", "/v1/internal/reset_prefix_cache", "/v1/internal/drain",
                 "/start_profile", "/stop_profile", "/invocations")}
    keyless[("DELETE", "/")] = ask("DELETE", "/v1/internal/requests/a")
    assert set(keyless.values()) <= {401, 404} and list(keyless.values()).count(401) >= 18, keyless
    assert ask("GET", "/health/live") == 200
    for header, status in (("Authorization: bearer plain", 200), ("Authorization: Bearer plain", 200),
                           ("Authorization: Bearer secret one", 200), ("Authorization: Bearer plai", 401),
                           ("Authorization: Bearer plainn", 401), ("Authorization: Bearer ", 401),
                           ("Authorization: Bearer", 401), ("Authorization: plain", 401),
                           ("Authorization: Bearer alice=secret one", 401), ("Authorization: Basic plain", 401)):
        assert ask("GET", "/v1/models", header) == status, header
    twice = ask("GET", "/v1/models", "Authorization: Bearer nope", "Authorization: Bearer plain")
    assert twice in (400, 401)
    assert "plain" not in it.log().replace("plain text", "") and "secret one" not in it.log()


def test_d99_metrics_may_be_open(serve):
    it = serve("--api-key", "plain", "--open-metrics", key="plain")
    with Raw(it.port) as raw:
        raw.send(get("/metrics"))
        assert raw.response()[0] == 200


def test_d100_slow_readers_hold_little_and_hinder_nobody(serve):
    it = serve("--max-num-seqs", "40", "--client-window", "8")
    slow = []
    for _ in range(30):
        raw = Raw(it.port, receive_buffer=2048)
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=7000)))
        slow.append(raw)
    before = memory_of(it.pid)
    for _ in range(3):
        for raw in slow:
            assert raw.socket.recv(1)
        assert answer_of(it.chat("#fox"))[0]["finish_reason"] == "stop"
    assert memory_of(it.pid) - before < 64 << 20
    # They are held, not lost: whoever reads on gets the rest.
    raw = slow.pop()
    status, _, body = raw.response() if raw.buffer else finish_of(raw)
    assert body.endswith(b"data: [DONE]\n\n")
    for raw in slow:
        raw.reset()


def finish_of(raw):
    """The end of a stream of which some bytes have been read."""
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        got = raw.socket.recv(65536)
        if not got:
            break
        data += got
    return 200, {}, data[:-len(b"\r\n0\r\n\r\n")]


def memory_of(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as it:
        return int(it.read().split()[1]) * 4096


def test_d100_a_reader_that_takes_nothing_is_dropped(serve):
    it = serve("--max-num-seqs", "8", "--client-window", "4", "--slow-consumer-timeout", "300ms")
    before = it.metrics()["slow_consumer_total"]
    with Raw(it.port, receive_buffer=2048) as raw:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=8000, logprobs=True)))
        wait_for(lambda: it.metrics()["slow_consumer_total"] > before, "it is dropped")
        wait_for(lambda: not it.is_at_rest(), "at rest")


def test_d102_request_ids_of_clients(server):
    for value in ("a" * 128, "a" * 129, "a" * 20_000, "tab\there"):
        with Raw(server.port) as raw:
            raw.send(post(CHAT, chat_body("#fox"), f"X-Request-Id: {value}"))
            status, headers, _ = raw.response()
            assert status in (200, 400, 431), status
            assert value not in headers.get("x-request-id", "")
    with Raw(server.port) as raw:
        raw.send(post(CHAT, chat_body("#fox"), "X-Request-Id: " + "a" * 60_000))
        assert raw.response()[0] in (200, 400, 413, 431)
    for value in (b"a\x00b", b"a\rb: c"):
        with Raw(server.port) as raw:
            raw.send(get("/health").replace(b"Host:", b"X-Request-Id: " + value + b"\r\nHost:"))
            try:
                assert raw.response()[0] in (200, 400)
            except (EOFError, ConnectionError):
                pass
    assert "a" * 129 not in server.log()
    assert all("\x00" not in line for line in server.log().splitlines())


def test_slow_headers_and_bodies_time_out(serve):
    it = serve("--header-timeout", "300ms", "--body-timeout", "300ms")
    with Raw(it.port) as raw:
        raw.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost:")
        assert raw.is_closed(10)
    with Raw(it.port) as raw:
        raw.send(post(CHAT, chat_body("#fox"))[:-5])
        try:
            status, _, _ = raw.response()
            assert status == 408
        except (EOFError, ConnectionError):
            pass
        assert raw.is_closed(10)
    with Raw(it.port) as raw:  # slow, but within the limits
        for piece in (b"GET /health HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n"):
            raw.send(piece)
            time.sleep(0.05)
        assert raw.response()[0] == 200


def test_a_closed_sending_side_is_no_disconnect_where_that_is_set(serve):
    it = serve("--no-eof-is-gone", script=SLOW)
    with Raw(it.port) as raw:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=30)), post(CHAT, chat_body("a")))
        raw.half_close()
        assert raw.response()[2].endswith(b"data: [DONE]\n\n")
        assert b"OK." in raw.response()[2]


def test_too_many_headers_or_too_long_ones(server):
    for headers in ([f"X-{i}: a" for i in range(150)], ["X-Long: " + "a" * 40_000]):
        with Raw(server.port) as raw:
            raw.send(get("/health", *headers))
            try:
                assert raw.response()[0] in (400, 413, 431)
            except (EOFError, ConnectionError):
                pass
    with Raw(server.port) as raw:
        raw.send(get("/health", *[f"X-{i}: a" for i in range(80)]))
        assert raw.response()[0] == 200


def test_connections_beyond_the_limit_are_refused(serve):
    it = serve("--max-connections", "20")
    held = [Raw(it.port) for _ in range(20)]
    try:
        for raw in held[:2]:
            raw.send(get("/health"))
            assert raw.response()[0] == 200
        with Raw(it.port) as raw:
            raw.send(get("/health"))
            try:
                assert raw.response()[0] == 503
            except (EOFError, ConnectionError):
                pass
    finally:
        for raw in held:
            raw.close()
    wait_for(lambda: can_ask(it), "it takes connections again")


def can_ask(it):
    try:
        return it.get("/health").status_code == 200
    except OSError:
        return False
    except Exception as failure:  # httpx wraps what the socket says
        return "connect" in str(failure).lower() and False


def test_cors(serve):
    it = serve("--cors-origin", "https://a.example")
    for origin, is_allowed in (("https://a.example", True), ("https://b.example", False)):
        with Raw(it.port) as raw:
            raw.send(get(CHAT, f"Origin: {origin}", "Access-Control-Request-Method: POST", method="OPTIONS"))
            _, headers, _ = raw.response()
            assert (headers.get("access-control-allow-origin") == origin) == is_allowed
            raw.send(get("/v1/models", f"Origin: {origin}"))
            _, headers, _ = raw.response()
            assert (headers.get("access-control-allow-origin") == origin) == is_allowed


def test_signals_that_do_not_end_it(own):
    it = own(script=shared_script())
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGPIPE):
        it.signal(number)
        assert answer_of(it.chat("#fox"))[0]["finish_reason"] == "stop"
    assert "running" in it.log().lower()
    assert PATIENCE > 0
