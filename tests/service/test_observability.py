"""/metrics as Prometheus reads it, and the trace as Perfetto does."""

import concurrent.futures
import json
import re

from prometheus_client.parser import text_string_to_metric_families

from service import ROOT, chat_body, wait_for

CHAT = "/v1/chat/completions"
SLICE_ROWS = {"scheduler: plan", "scheduler: settle", "device: forward", "device: sample"}


def families(server):
    reply = server.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {it.name: it for it in text_string_to_metric_families(reply.text)}


def load(server, count=40):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: server.post(CHAT, chat_body(["#fox", "#two", "#long"][i % 3],
                                                                     max_tokens=30 + i)), range(count)))
    assert all(it.status_code == 200 for it in replies)
    return replies


def series(found):
    return {(sample.name, *sorted(sample.labels.items())): (sample.value, family.type)
            for family in found.values() for sample in family.samples}


def test_counters_only_rise(server):
    load(server, 4)
    wait_for(lambda: not server.is_at_rest(), "at rest")
    before = families(server)
    replies = load(server)
    wait_for(lambda: not server.is_at_rest(), "at rest")
    after = families(server)
    then, now = series(before), series(after)
    for key, (value, kind) in then.items():
        assert key in now, f"{key} has vanished"
        if kind in ("counter", "histogram"):
            assert now[key][0] >= value, key

    def rise(name):
        return sum(value - then.get(key, (0, kind))[0] for key, (value, kind) in now.items() if key[0] == name)

    prefix = "deepinfer:"
    assert rise(prefix + "generation_tokens_total") == \
        sum(it.json()["usage"]["completion_tokens"] for it in replies)
    assert rise(prefix + "prompt_tokens_total") == sum(it.json()["usage"]["prompt_tokens"] for it in replies)
    assert rise(prefix + "request_success_total") == len(replies)
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds", "request_inference_time_seconds",
                 "request_prompt_tokens", "request_generation_tokens"):
        assert rise(f"{prefix}{name}_count") == len(replies), name
        assert rise(f"{prefix}{name}_sum") > 0, name
    assert rise(prefix + "steps_total") > 0 and rise(prefix + "remap_total") > 0
    assert rise(prefix + "device_busy_seconds_total") > 0
    assert rise(prefix + "http_requests_total") >= len(replies)
    assert rise(prefix + "prefix_cache_queries_total") > 0


def test_every_metric_of_the_list_is_there_from_the_start(own):
    it = own()
    found = families(it)
    listed = re.findall(r"^DI_METRIC\((\w+), (\w+),", (ROOT / "runtime/base/metrics.def").read_text(), re.M)
    assert len(listed) > 50
    for name, kind in listed:
        family = found.get(f"deepinfer:{name}") or found.get(f"deepinfer:{name.removesuffix('_total')}")
        assert family, name
        assert family.type == kind and family.documentation, name
    labels = {key for family in found.values() for sample in family.samples for key in sample.labels}
    assert not labels & {"request_id", "id", "client_request_id"}
    assert any(it.startswith("process_") for it in found)


def test_histograms_are_cumulative(server):
    load(server, 6)
    for family in families(server).values():
        if family.type != "histogram":
            continue
        by_labels = {}
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                rest = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                by_labels.setdefault(rest, []).append((float(sample.labels["le"]), sample.value))
        for buckets in by_labels.values():
            values = [value for _, value in sorted(buckets)]
            assert values == sorted(values) and buckets[-1][0] == float("inf"), family.name


def test_prefix_of_names(serve):
    it = serve("--metrics-prefix", "deepinfer_")
    assert "deepinfer_num_requests_running" in it.get("/metrics").text


def test_trace(serve):
    it = serve("--max-num-seqs", "8", "--trace-buffer-steps", "512",
               script={"step_ms": 25, "answers": [{"when": "#long", "then": "go on"}]})  # far above a plan
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: it.chat(f"#long {i}", max_tokens=60), range(4)))
    reply = it.get("/debug/trace?steps=64")
    assert reply.headers["content-type"].startswith("application/json")
    document = reply.json()
    assert document["displayTimeUnit"] == "ms"
    trace = document["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "process_name"}
    assert SLICE_ROWS <= set(rows.values()), rows
    slices = {}
    for event in trace:
        assert {"ph", "pid"} <= set(event), event
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0 and event["name"]
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for row, times in slices.items():  # slices of a row do not overlap
        times.sort()
        for (_, end), (begin, _) in zip(times, times[1:]):
            assert begin >= end - 1e-3, rows.get(row)
    phases = {event["ph"] for event in trace}
    assert {"s", "f", "C", "b", "e"} <= phases, phases
    flows = {}
    for event in trace:
        if event["ph"] in "sf":
            flows.setdefault(event["id"], []).append(event)
    assert flows and all(len(it) <= 2 for it in flows.values())
    forward = sorted(times for row, list_ in slices.items() if rows[row] == "device: forward" for times in list_)
    schedule = [times for row, list_ in slices.items() if rows[row] == "scheduler: plan" for times in list_]
    assert len(forward) >= 40
    hidden = sum(any(begin - 1 <= a and b <= end + 1 for begin, end in forward) for a, b in schedule)
    assert hidden >= 0.9 * (len(schedule) - 4), (hidden, len(schedule))
    assert len(json.dumps(it.get("/debug/trace?steps=1").json())) < len(json.dumps(document))


def test_trace_file_at_the_end(own, tmp_path):
    path = tmp_path / "run.trace.json"
    it = own("--trace-file", str(path))
    it.chat("#long", max_tokens=20)
    assert it.stop() == 0
    assert len(json.loads(path.read_text())["traceEvents"]) > 20


def test_profile(server):
    assert server.post("/start_profile").status_code == 200
    load(server, 3)
    reply = server.post("/stop_profile")
    assert reply.status_code == 200 and "traceEvents" in reply.text


def test_status_line(own):
    it = own("--stats-interval", "200ms", script={"step_ms": 5, "answers": [{"when": "#long", "then": "go on"}]})
    it.chat("#long", max_tokens=120)
    line = re.compile(r"run \d+ wait \d+ \| prompt \d+ tok/s gen \d+ tok/s \| kv [\d.]+ % hit \d+ % \| "
                      r"step [\d.]+ ms idle [\d.]+ % \| defer \d+ preempt \d+")
    wait_for(lambda: line.search(it.log()), "a status line")


def test_json_log(own):
    it = own("--log-format", "json")
    it.post(CHAT, chat_body("#fox secret words"), headers={"X-Request-Id": "mine-1"})
    lines = wait_for(lambda: [json.loads(one) for one in it.log().splitlines() if "mine-1" in one], "its line")
    one = lines[-1]
    assert {"ts", "level", "msg"} <= set(one)
    assert all(json.loads(each) for each in it.log().splitlines() if each.strip())
    assert "secret words" not in it.log()


def test_live_requests(serve):
    it = serve("--max-num-seqs", "2", script={"step_ms": 4, "answers": [{"when": "#long", "then": "go on"}]})
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(it.post, CHAT, chat_body("#long", max_tokens=8000), headers={"X-Request-Id": f"c{i}"})
                 for i in range(3)]
        listed = wait_for(lambda: (rows := it.requests()) and len(rows) == 3 and
                          {one["state"] for one in rows} >= {"decode", "queued"} and rows, "three are listed")
        assert {one["client_request_id"] for one in listed} == {"c0", "c1", "c2"}
        for one in listed:
            assert one["prompt_tokens"] > 0 or one["state"] == "queued"
            with it.client() as client:
                assert client.delete(f"/v1/internal/requests/{one['id']}").status_code == 200
        for one in asked:
            assert one.result().status_code in (200, 499, 400)


def test_dashboard(server):
    reply = server.get("/")
    assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/html")
    assert len(reply.content) < 100_000
    assert not re.search(r"(?:src|href)=[\"']https?://", reply.text)
    with server.client() as client, client.stream("GET", "/v1/internal/events") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        for line in events.iter_lines():
            if line.startswith("data: "):
                assert json.loads(line[6:])
                break


def test_version_and_health(server):
    version = server.get("/version").json()
    assert version["version"]
    assert server.get("/health/live").status_code == 200
    assert server.get("/health/ready").status_code == 200
    assert server.get("/health").json()["status"] in ("ready", "ok")
