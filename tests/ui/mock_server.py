#!/usr/bin/env python3
"""Plays recorded snapshots of a node to the dashboard: python3 tests/ui/mock_server.py --port 8088

The recording (snapshots.jsonl: a snapshot of actors/dashboard_snapshot.hpp per line) begins again
when it has ended, with later steps and times. --key, --groups, --loading, --no-stream and --gateway show the
page what a recording of a plain node lacks."""
import argparse
import http.server
import json
import pathlib
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "runtime" / "http" / "dashboard.html"
HOSTILE_ID = "<img src=x onerror=document.title='broken'>"


class Recording:
    """Snapshots without end."""

    def __init__(self):
        self.frames = [json.loads(line) for line in open(HERE / "snapshots.jsonl", encoding="utf-8")]
        steps = [step for frame in self.frames for step in frame["steps"]]
        self.steps = steps[-1]["step"] - steps[0]["step"] + 1
        self.time_us = self.frames[-1]["now_us"] - self.frames[0]["now_us"] + 50_000

    def gateway(self, number, names, down=()):
        """Two nodes behind a gateway, the second some frames behind; those that are `down` are silent."""
        nodes, parts = [], []
        for i, name in enumerate(names):
            part = self.frame(number + 2 * i)
            part["health"]["node"] = name
            part["replicas"] = [replica(part, r, 2) for r in range(2 - i)]
            for request in part["requests"]:
                request["id"] = name + "-" + request["id"]
            is_up = name not in down
            nodes.append({"name": name if is_up else "", "address": "10.0.0.%d:4242" % (i + 1),
                          "state": "ready" if is_up else "down", "progress": 1, "takes_requests": is_up,
                          "reason": "" if is_up else "no connection to the node: nobody answers",
                          "snapshot": part if is_up else None})
            parts += [part] * is_up
            part["requests"].append(dict(part["requests"][0], id=name + "-direct"))  # came to the node itself
        out = self.frame(number)
        out["steps"], out["replicas"], out["nodes"] = [], [], nodes
        out["running"], out["waiting"] = (sum(it[key] for it in parts) for key in ("running", "waiting"))
        for key in ("totals", "kv"):
            out[key] = {name: sum(it[key][name] for it in parts) if not isinstance(value, dict) else value
                        for name, value in out[key].items()}
        out["requests"] = [dict(it, node=part["health"]["node"]) for part in parts for it in part["requests"][:-1]]
        out["requests_total"] = len(out["requests"])
        if not parts:
            out["health"].update(state="loading", progress=0, stage="no replica can take requests")
        return out

    def frame(self, number, groups=False, hostile=False):
        turn, which = divmod(number, len(self.frames))
        out = json.loads(json.dumps(self.frames[which]))
        for step in out["steps"]:
            step["step"] += turn * self.steps
            for lane in ("plan", "forward", "sample", "settle"):
                if step[lane]:
                    step[lane] = [at + turn * self.time_us for at in step[lane]]
        out["newest_step"] += turn * self.steps
        out["now_us"] += turn * self.time_us
        out["uptime_s"] += number // 2
        first, last = self.frames[0]["totals"], self.frames[-1]["totals"]
        for name, value in out["totals"].items():
            if not isinstance(value, dict):
                out["totals"][name] = value + turn * (last[name] - first[name])
        if groups:
            out["group"] = {"size": 4, "go": 40 + number, "wait": 310 + 3 * number, "vetoed": 2}
            load = [[(e * 37 + r * 11 + number) % 90 + (80 if e == 5 * r else 0) for e in range(32)]
                    for r in range(4)]
            sums = [sum(rank) for rank in load]
            out["eplb"] = {"placement_version": 3, "imbalance": max(sums) * len(sums) / sum(sums),
                           "gain": 0.21, "rebalances": 3, "cancelled": 1, "load": load}
        if hostile:
            out["requests"].insert(0, dict(out["requests"][0], id=HOSTILE_ID, state="queued"))
            out["requests_total"] += 1
        return out


def replica(node, number, count):
    totals, kv = node["totals"], node["kv"]
    return {"replica": number, "state": "up", "running": node["running"] // count, "waiting": 0,
            "preemptions": 0, "kv": {name: kv[name] // count for name in ("total", "cached", "free")},
            **{name: totals[name] // count for name in ("generation_tokens", "steps", "busy_us", "span_us")}}


def neighbour(name, origin, reason=""):
    return {"name": name, "address": name + ":4242", "origin": origin, "state": "down" if reason else "ready", "progress": 1,
            "takes_requests": not reason and origin != "told", "reason": reason, "snapshot": None}


def empty(node):
    """As a server is that nobody has asked anything."""
    node.update(running=0, waiting=0, requests=[], requests_total=0, steps=[], newest_step=-1, overlap=None,
                ttft_s={"p50": None, "p95": None}, itl_s={"p50": None, "p95": None},
                totals={name: 0 for name in node["totals"]})
    node["totals"]["idle_us"] = {cause: 0 for cause in ("plan", "settle", "vote", "transfer")}
    node["kv"] = {name: 0 for name in node["kv"]}
    node["kv"].update(total=640, free=640)


class Mock(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0, key="", groups=False, loading=False, no_stream=False, interval=0.25, idle=False,
                 gateway=False, fresh=False, replicas=1, around=False):
        super().__init__(("127.0.0.1", port), Handler)
        self.recording = Recording()
        self.key, self.groups, self.loading, self.no_stream = key, groups, loading, no_stream
        self.interval = interval
        self.idle = idle  # nothing runs any more; its last steps are there for whoever has not seen them
        self.gateway = gateway
        self.fresh = fresh  # nothing has been asked of it
        self.replicas = replicas
        self.holds = False  # an idle one has a request whose client takes nothing
        self.around = around  # it knows other nodes
        self.names = ["n0", "n1"]
        self.down = set()  # names of its nodes that are silent
        self.began = time.monotonic()
        self.calls = []  # (method, path, body) of what changes something
        self.draining = False
        self.is_gone = False
        self.keeps_requests = False
        self.fails = False  # its engine gives no answer in time

    def url(self):
        return "http://127.0.0.1:%d/" % self.server_address[1]

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def snapshot(self, number, known=-1):
        if self.gateway:
            return self.recording.gateway(number, self.names, self.down)
        out = self.recording.frame(0 if self.idle else number, self.groups, hostile=True)
        if self.replicas > 1:
            out["replicas"] = [replica(out, r, self.replicas) for r in range(self.replicas)]
        if self.around:
            out["nodes"] = [neighbour("n1", "self"), neighbour("n2", "peer"),
                            neighbour("n3", "joined", "nobody answers"), neighbour("n3", "told")]
        if self.fresh:
            empty(out)
        if self.idle:
            out.update(running=0, waiting=0, requests=[], requests_total=0)
            if self.holds:
                request = dict(self.recording.frames[0]["requests"][0], state="paused", chunks_pending=64)
                out.update(running=1, requests=[request], requests_total=1)
            out["now_us"] += int((5 + time.monotonic() - self.began) * 1e6)
            out["steps"] = [it for it in out["steps"] if it["step"] > known]
        if self.draining:
            out["health"]["state"] = "draining"
        return out

    def handle_error(self, request, client_address):
        pass  # a page that leaves is no fault


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def give(self, body, status=200, kind="application/json"):
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status, message):
        self.give(json.dumps({"error": {"message": message, "type": "mock", "param": None, "code": "mock"}}), status)

    def stream(self, pieces):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for piece in pieces:
            if self.server.is_gone:
                return
            self.wfile.write(("data: %s\n\n" % piece).encode())
            self.wfile.flush()

    def may_not(self, path):
        if self.server.is_gone:
            self.close_connection = True
            return True
        if path == "/" or not self.server.key:
            return False
        if self.headers.get("Authorization") == "Bearer " + self.server.key:
            return False
        self.fail(401, "the API key is missing or wrong")
        return True

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        mock = self.server
        if self.may_not(url.path):
            return
        if url.path == "/":
            self.give(PAGE.read_bytes(), kind="text/html; charset=utf-8")
        elif url.path == "/health" and mock.loading:
            self.give(json.dumps({"status": "loading", "progress": 0.42, "stage": "reading weights"}), 503)
        elif url.path == "/v1/internal/events" and mock.loading:
            self.fail(503, "the model is not loaded yet")
        elif url.path == "/v1/internal/events" and not mock.no_stream:
            self.stream(self.snapshots())
        elif url.path == "/v1/internal/snapshot":
            known = int(urllib.parse.parse_qs(url.query).get("step", ["-1"])[0])
            self.give(json.dumps(mock.snapshot(int(time.monotonic() / mock.interval), known)))
        elif url.path == "/debug/trace":
            mock.calls.append(("GET", self.path, ""))
            self.give('{"traceEvents":[]}')
        else:
            self.fail(404, "no such path")

    def snapshots(self):
        number, known = 0, -1
        while True:
            if self.server.fails:
                yield json.dumps({"error": {"message": "no answer within the deadline"}})
                time.sleep(self.server.interval)
                continue
            shown = self.server.snapshot(number, known)
            yield json.dumps(shown)
            number, known = number + 1, shown["newest_step"]
            time.sleep(self.server.interval)

    def do_DELETE(self):
        if self.may_not(self.path):
            return
        self.server.calls.append(("DELETE", urllib.parse.unquote(self.path), ""))
        if self.server.keeps_requests:
            return self.fail(404, "no such request")
        self.give('{"cancelled":1}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.may_not(self.path):
            return
        self.server.calls.append(("POST", self.path, body))
        if self.path == "/v1/chat/completions":
            asked = json.loads(body)
            if any(it["content"] == "fail" for it in asked["messages"]):
                return self.fail(400, "temperature: found 9, expected 0 to 2")
            return self.stream(self.answer(asked))
        if self.path == "/v1/internal/drain":
            self.server.draining = True
        if self.path == "/v1/internal/resume":
            self.server.draining = False
        return self.give('{"status":"ok"}')

    def answer(self, asked):
        def chunk(delta, finish=None):
            return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        yield chunk({"role": "assistant", "content": ""})
        if asked["thinking"]["type"] == "enabled":
            yield chunk({"reasoning_content": "It asks for a sum."})
        words = ["The ", "sum ", "is ", "<b>12</b>."]
        if asked["messages"][-1]["content"] == "go on":
            words = ["and "] * 10_000
        for word in words:
            time.sleep(0.02)
            yield chunk({"content": word})
        yield chunk({}, "stop")
        yield json.dumps({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 4,
                                                   "prompt_tokens_details": {"cached_tokens": 8}}})
        yield "[DONE]"


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--port", type=int, default=8088)
    flags.add_argument("--key", default="")
    for name in ("groups", "loading", "no-stream", "gateway"):
        flags.add_argument("--" + name, action="store_true")
    given = flags.parse_args()
    mock = Mock(given.port, given.key, given.groups, given.loading, given.no_stream, gateway=given.gateway)
    print("the dashboard with a recorded node: " + mock.url())
    mock.serve_forever()


if __name__ == "__main__":
    main()
