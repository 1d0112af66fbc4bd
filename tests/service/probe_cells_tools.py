"""A.4 and A.5: command line, configuration, loading, shutdown; what shows how it is doing."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import tempfile

from probe import NEEDS_SPAWN, NotShown, Reply, always, cell, edit, expect, later, refuse, swap
from service import ROOT, Process, Server, free_port

TINY = ROOT / "examples/models/tiny-v41"
PACED = {"step_ms": 5, "answers": [{"when": "#long", "then": "go on"}, {"when": "#wait", "say": "x", "first_ms": 600}]}


def started(bed, *flags, **options):
    """A server of this probe alone."""
    if bed.url:
        raise NotShown(NEEDS_SPAWN)
    return Server(*flags, **options)


def local(bed):
    if bed.url:
        raise NotShown(NEEDS_SPAWN)


# --- A.4 ------------------------------------------------------------------------------------------
@cell("A.4", "one short start command", refuse("/v1/chat"))
def short_start(bed):
    it = started(bed)  # `deepinfer serve`, apart from free ports
    try:
        expect(len(bed.chat(it, "What is 7 + 5?", max_tokens=20).choice()["message"]["content"]) > 1)
    finally:
        it.stop()


@cell("A.4", "YAML file, flags win", swap("from-file", "default"))
def yaml_file(bed):
    local(bed)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("model: { served_name: [from-file] }\nengine: { max_num_seqs: 7, depth: 1 }\n")
        file.flush()
        shown = bed.run("config", "print", "--config", file.name, "--depth", "3").text
        expect("from-file" in shown and re.search(r"max_num_seqs\W+7\b", shown) and re.search(r"depth\W+3\b", shown), shown)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("engine:\n  max_num_sequences: 7\n")
        file.flush()
        wrong = bed.run("config", "validate", file.name)
        said = wrong.stderr.decode() + wrong.text
        expect(wrong.status == 2 and "max_num_seqs" in said and "2" in said, said)


@cell("A.4", "an environment variable for every flag", swap("DEEPINFER_", "X_"))
def environment(bed):
    local(bed)
    shown = bed.run("config", "print", env={"DEEPINFER_MAX_NUM_SEQS": "9", "DEEPINFER_DEPTH": "3"}).text
    expect(re.search(r"max_num_seqs\W+9\b", shown) and re.search(r"depth\W+3\b", shown), shown[:300])
    rows = re.findall(r"^\| `(\w+)` \| `--(\S+)[^|]*\| `(DEEPINFER_\w+)`", bed.run("config", "docs").text, re.M)
    expect(len(rows) > 60, len(rows))
    return f"{len(rows)} variables"


@cell("A.4", "--help: grouped, nearest names", swap("--max-num-seqs", "--x"))
def helps(bed):
    local(bed)
    shown = bed.run("serve", "--help").text
    for flag in ("--port", "--max-num-seqs", "--api-key", "--shutdown-timeout", "--log-format"):
        expect(flag in shown, flag)
    wrong = bed.run("serve", "--max-num-seq", "4")
    expect(wrong.status == 2 and b"--max-num-seqs" in wrong.stderr, wrong.stderr)


@cell("A.4", "check: a model without serving it", always(0, "ok", only="check"))
def check(bed):
    local(bed)
    good = bed.run("check", TINY)
    expect(good.status == 0 and "tensors" in good.text.lower(), good.text[:200])
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(TINY, folder, dirs_exist_ok=True)
        (pathlib.Path(folder) / "tokenizer.json").unlink()
        bad = bed.run("check", folder)
        expect(bad.status == 3 and b"tokenizer.json" in bad.stderr + bad.content, bad.stderr)


@cell("A.4", "weights that are drawn, for CI and measurements", refuse("/v1/completions"))
def drawn_weights(bed):
    local(bed)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "engram.json", "generation_config.json"):
            shutil.copy(TINY / name, folder)
        it = started(bed, "--model", folder, "--load-format", "dummy", "--max-num-seqs", "4")
        try:
            expect(bed.complete(it, "a", max_tokens=4, ignore_eos=True).json()["usage"]["completion_tokens"] == 4)
        finally:
            it.stop()


@cell("A.4", "progress of loading", swap("loading", "x", only="log"))
def progress(bed):
    it = started(bed)
    try:
        log = bed.log(it)
        expect("loading" in log and "Ready: http" in log, log[-500:])
    finally:
        it.stop()


@cell("A.4", "weights are mapped, not read", always(content="9e12", only="peak"))
def mapped(bed):
    """A checkpoint of 8 GiB, most of it a hole, is checked within little memory."""
    local(bed)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(TINY, folder, dirs_exist_ok=True)
        path = pathlib.Path(folder) / "model.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        end = len(data) - 8 - size
        header["more"] = {"dtype": "U8", "shape": [8 << 30], "data_offsets": [end, end + (8 << 30)]}
        packed = json.dumps(header, separators=(",", ":")).encode()
        path.write_bytes(len(packed).to_bytes(8, "little") + packed + data[8 + size:])
        os.truncate(path, path.stat().st_size + (8 << 30))
        it = Process("check", folder)
        _, _, usage = os.wait4(it.pid, 0)
        it.child.returncode = 0
        it.kill()
        peak = float(bed.broken("peak", reply_of(str(usage.ru_maxrss << 10))).content)
        expect(peak < 500e6, f"{peak / 1e6:.0f} MB")
        return f"{peak / 1e6:.0f} MB for 8 GiB"


def reply_of(text):
    return Reply(0, text.encode())


@cell("A.4", "names the missing shard or tensor", always(3, "something is missing"))
def missing_shard(bed):
    local(bed)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(TINY, folder, dirs_exist_ok=True)
        path = pathlib.Path(folder) / "model.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        name = next(one for one in header if "norm" in one)
        other = json.dumps({("x" * len(key) if key == name else key): value for key, value in header.items()},
                           separators=(",", ":")).encode().ljust(size)
        path.write_bytes(data[:8] + other[:size] + data[8 + size:])
        got = bed.run("check", folder)
        said = (got.stderr + got.content).decode()
        expect(got.status == 3 and name in said, said[:300])
        return name


@cell("A.4", "not ready until loaded", always(200, only="/health"))
def readiness(bed):
    it = started(bed, "--max-num-seqs", "2", wait=False)
    try:
        url = bed.wait(lambda: re.search(r"(http://\S+?:(\d+))\b", it.log()))
        expect(url, "it does not listen before it has loaded")
        it.url, it.port = url[1], int(url[2])
        first = bed.get(it, "/health/ready")
        is_early = "Ready:" not in it.log()
        it.wait_until_ready()
        expect(bed.get(it, "/health/ready").status == 200)
        # Where loading was over at once, draining shows that readiness is not just liveness.
        if first.status == 503 and is_early:
            return "503 while loading"
    finally:
        it.stop()
    slow = started(bed, script=PACED)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(slow.chat, "#long", max_tokens=200)
            bed.wait(slow.requests)
            slow.signal(signal.SIGTERM)
            expect(bed.wait(lambda: bed.get(slow, "/health/ready").status == 503, 0.8), "ready while it drains")
            asked.result()
    finally:
        slow.stop()
    return "503 while draining"


@cell("A.4", "binds 127.0.0.1:8000 by default", swap("8000", "9"))
def default_bind(bed):
    local(bed)
    shown = bed.run("config", "print").text
    expect(re.search(r"host\W+127\.0\.0\.1", shown) and re.search(r"port\W+8000\b", shown), shown[:400])


@cell("A.4", "a port in use is said at once, exit code 4", always(1, only="serve"))
def port_in_use(bed):
    local(bed)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        got = bed.run("serve", "--port", port, "--actor-port", "0", seconds=20)
        expect(got.status == 4 and port.encode() in got.stderr, (got.status, got.stderr[-300:]))


@cell("A.4", "API keys", always(200, '{"data":[]}', only="/v1/models"))
def keys(bed):
    it = bed.scripted("--api-key", "right", key="right")
    expect(bed.get(it, "/v1/models").status == 200)
    expect(bed.get(it, "/v1/models", headers={"Authorization": "Bearer wrong"}).status == 401)
    expect(bed.get(it, "/v1/models", headers={"Authorization": ""}).status == 401)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("# holders\nalice=one two\nthree\n")
        file.flush()
        other = bed.scripted("--api-key-file", file.name, key="three")
        expect(bed.get(other, "/v1/models").status == 200)
        expect(bed.get(other, "/v1/models", headers={"Authorization": "Bearer one two"}).status == 200)


@cell("A.4", "CORS", refuse("/v1/models", 401))
def cors(bed):
    it = bed.scripted("--cors-origin", "https://a.example")
    got = bed.get(it, "/v1/models", headers={"Origin": "https://a.example"})
    expect(got.headers.get("access-control-allow-origin") == "https://a.example", got.headers)
    got = bed.get(it, "/v1/models", headers={"Origin": "https://b.example"})
    expect(got.headers.get("access-control-allow-origin") != "https://b.example")


@cell("A.4", "drain on SIGTERM, with a deadline", always(500, "{}", only="/v1/chat"))
def drain_on_sigterm(bed):
    it = started(bed, "--shutdown-timeout", "20s", script=PACED)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(bed.chat, it, "#long", max_tokens=60)
            bed.wait(it.requests)
            it.signal(signal.SIGTERM)
            got = asked.result()
            expect(got.status == 200 and got.choice()["finish_reason"] == "length", got.text[:200])
        expect(it.wait(10) == 0)
    finally:
        it.stop()
    it = started(bed, "--shutdown-timeout", "200ms", script=PACED)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(it.chat, "#long", max_tokens=5000)
            bed.wait(it.requests)
            it.signal(signal.SIGTERM)
            expect(it.wait(10) == 0, "it outlives its deadline")
            expect(asked.result().status_code == 503)
    finally:
        it.stop()


@cell("A.4", "many nodes behind one gateway", refuse("/v1/chat", 503))
def many_nodes(bed):
    local(bed)
    ports = [free_port() for _ in range(2)]
    nodes = [Server("--actor-port", str(port), "--no-prefix-cache", script=PACED) for port in ports]
    gateway = None
    try:
        gateway = Server("--connect", ",".join(f"127.0.0.1:{port}" for port in ports), command="gateway")
        expect(bed.wait(lambda: gateway.get("/health/ready").status_code == 200), "the gateway finds no node")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda i: bed.chat(gateway, f"#long {i}", max_tokens=40).status, range(16)))
        expect(got == [200] * 16, got)
        shares = [node.metrics()["request_success_total"] for node in nodes]
        expect(all(share > 1 for share in shares), shares)
        return f"shares {shares}"
    finally:
        for it in [gateway, *nodes]:
            if it:
                it.stop()


later("A.4", "roles prefill and decode", "groups and KV transfer come with it")


# --- A.5 ------------------------------------------------------------------------------------------
@cell("A.5", "status line, silent when idle", swap(" tok/s", "", only="log"))
def status_line(bed):
    it = started(bed, "--stats-interval", "200ms", script=PACED)
    try:
        it.chat("#long", max_tokens=150)
        line = r"run \d+ wait \d+ \| prompt [\d.]+ tok/s gen [\d.]+ tok/s \| kv [\d.]+ % hit [\d.]+ %"
        expect(bed.wait(lambda: re.search(line, bed.log(it)), 3), bed.log(it)[-300:])
        bed.wait(lambda: False, 1)
        count = len(re.findall(line, it.log()))
        bed.wait(lambda: False, 1)
        expect(len(re.findall(line, it.log())) == count, "it talks while idle")
    finally:
        it.stop()


@cell("A.5", "gauges of running, waiting and KV", swap("num_requests_waiting", "x", only="/metrics"))
def gauges(bed):
    it = bed.scripted("--max-num-seqs", "1", script=PACED)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(it.chat, "#long", max_tokens=150) for _ in range(3)]
        seen = bed.wait(lambda: bed.metric(it, "num_requests_running") == 1 and
                        bed.metric(it, "num_requests_waiting") == 2 and
                        (bed.metric(it, "kv_cache_usage_perc") or 0) > 0, 5)
        for one in asked:
            one.result()
    expect(seen, "running 1, waiting 2 was never shown")
    expect(bed.wait(lambda: bed.metric(it, "num_requests_running") == 0, 5))


def rises(bed, it, names, work):
    before = {name: bed.metric(it, name) for name in names}
    work()
    for name in names:
        now = bed.metric(it, name)
        expect(before[name] is not None and now is not None, f"{name} is not there")
        expect(now > before[name], f"{name} stays at {now}")


@cell("A.5", "histograms: TTFT, ITL, E2E, queue, prefill, decode", swap("inter_token_latency", "x", only="/metrics"))
def histograms(bed):
    it = bed.scripted(script=PACED)
    names = [f"{name}_seconds{end}" for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency",
                                                 "request_queue_time", "request_prefill_time", "request_decode_time")
             for end in ("_count", "_sum")]
    rises(bed, it, names, lambda: it.chat("#long", max_tokens=20))


@cell("A.5", "counters of prefix hits", swap("prefix_cache_hits_total", "x", only="/metrics"))
def prefix_hits(bed):
    it = bed.scripted("--block-size", "8")
    rises(bed, it, ["prefix_cache_queries_total", "prefix_cache_hits_total"],
          lambda: [it.complete("hits for the counter " * 20, max_tokens=2) for _ in range(2)])


@cell("A.5", "counter of preemptions", swap("num_preemptions_total", "x", only="/metrics"))
def preemptions(bed):
    it = bed.scripted("--block-size", "4", "--num-kv-blocks", "128", "--max-model-len", "400", "--max-num-seqs", "16")

    def work():
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            list(pool.map(lambda i: it.complete(f"#long {i}", max_tokens=120), range(24)))

    rises(bed, it, ["num_preemptions_total"], work)


@cell("A.5", "counters of speculation", swap("spec_decode_num_accepted", "x", only="/metrics"))
def speculation(bed):
    it = bed.scripted("--num-drafts", "3")
    rises(bed, it, ["spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
                    "spec_decode_num_accepted_tokens_total"], lambda: it.chat("#long", max_tokens=40))


@cell("A.5", "overlap of host and device", swap("device_busy_seconds_total", "x", only="/metrics"))
def overlap(bed):
    it = bed.scripted(script=PACED)
    rises(bed, it, ["device_busy_seconds_total", "step_duration_seconds_count", "plan_duration_seconds_count",
                    "settle_duration_seconds_count", "steps_total", "remap_total"],
          lambda: it.chat("#long", max_tokens=60))
    ratio = bed.metric(it, "overlap_ratio")
    expect(ratio is not None and 0 < ratio <= 1, f"overlap_ratio {ratio}")
    expect(bed.metric(it, "device_idle_seconds_total") is not None)
    return f"overlap_ratio {ratio:.2f}"


later("A.5", "balance of experts (EPLB)", "its metrics exist and stay 0 until there are groups")


@cell("A.5", "step trace for Chrome and Perfetto", edit(lambda it: it.__setitem__("traceEvents", []), only="/debug/trace"))
def trace(bed):
    it = bed.scripted(script=PACED)
    it.chat("#long", max_tokens=60)
    events = bed.get(it, "/debug/trace?steps=32").json()["traceEvents"]
    names = {one["args"].get("name", "") for one in events if one["ph"] == "M"}
    expect(any("plan" in name for name in names) and any("forward" in name for name in names), names)
    slices = [one for one in events if one["ph"] == "X"]
    expect(len(slices) > 60 and {"s", "f", "b", "e", "C"} <= {one["ph"] for one in events}, len(slices))
    return f"{len(slices)} slices of 32 steps"


@cell("A.5", "traceparent is passed on", swap("0af7651916cd43dd8448eb211c80319c", "x"))
def traceparent(bed):
    it = started(bed, "--log-format", "json", script=PACED)
    try:
        trace = "0af7651916cd43dd8448eb211c80319c"
        bed.chat(it, "a", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        expect(bed.wait(lambda: trace in bed.log(it), 3), "not in the log")
    finally:
        it.stop()


later("A.5", "NVTX ranges", "with CUDA")


@cell("A.5", "JSON logs", swap('"level"', '"x"', only="log"))
def json_logs(bed):
    it = started(bed, "--log-format", "json", script=PACED)
    try:
        it.chat("a")
        lines = [json.loads(line) for line in bed.log(it).splitlines() if line.strip()]
        expect(len(lines) > 2 and all({"ts", "level", "msg"} <= set(line) for line in lines), lines[-1])
        expect(bed.wait(lambda: "request_id" in it.log(), 3), "no line of a request")
    finally:
        it.stop()


@cell("A.5", "bench serve, offline and latency", always(1, only="bench"))
def bench(bed):
    it = bed.scripted(script=PACED)
    got = bed.run("bench", "serve", "--url", it.url, "--num-prompts", "6", "--input-len", "20", "--output-len", "8",
                  "--vocab-size", "1000", "--json")
    expect(got.status == 0, got.stderr[-300:])
    result = json.loads(got.content)
    expect(result["completed"] == 6 and result["total_output_tokens"] == 48, result)
    expect(result["mean_ttft_ms"] > 0 and result["output_throughput"] > 0, result)
    got = bed.run("bench", "offline", "--batch", "2", "--tokens", "4", "--prefill", "0", "--repeats", "1", "--json")
    expect(got.status == 0 and json.loads(got.content), got.stderr[-300:])
    return f"{result['output_throughput']:.0f} tok/s"


@cell("A.5", "golden logits of the embedded model", edit(lambda it: it.update(argmax=[0]), only="logits"))
def goldens(bed):
    local(bed)
    rows = json.loads((TINY / "goldens.json").read_text())["raw"]
    for row in rows[:3]:
        ids = [*row["prompt_ids"], *row["expected_ids"]]
        with tempfile.TemporaryDirectory() as folder:
            got = bed.run("logits", "--ids", ",".join(map(str, ids[:-1])), "--out", f"{folder}/a.safetensors", "--json")
        expect(got.status == 0, got.stderr[-300:])
        best = got.json()["argmax"]
        expect(best[-len(row["expected_ids"]):] == row["expected_ids"], (best, row["expected_ids"]))
    return f"{len(rows[:3])} continuations"
