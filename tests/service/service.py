"""A deepinfer process to test: starts it, finds its ports, asks how it is, checks that it rests."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

import httpx
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("DEEPINFER_BINARY", ROOT / "build/release/bin/deepinfer"))
FULL = os.environ.get("DEEPINFER_TEST_FULL") == "1"
# Sanitized builds are slower; nothing here waits for time to pass, so only bounds grow.
PATIENCE = float(os.environ.get("DEEPINFER_TEST_PATIENCE", "30"))
READY = re.compile(r"Ready: (http://(\S+?):(\d+))\b")
LISTENS = re.compile(r"listening on (http://(\S+?):(\d+))\b")


class NotAtRest(AssertionError):
    pass


def wait_for(check, what, seconds=PATIENCE, pause=0.02):
    """The first true value of `check`, asked again and again."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Process:
    """`deepinfer ARGUMENTS`, with its stderr in a file."""

    def __init__(self, *arguments, env=None):
        self.arguments = [str(it) for it in arguments]
        self.log_file = tempfile.NamedTemporaryFile(prefix="deepinfer-", suffix=".log", delete=False)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")}
        environment["NO_COLOR"] = "1"
        environment.update(env or {})
        self.child = subprocess.Popen([BINARY, *self.arguments], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=self.log_file, env=environment)

    @property
    def pid(self):
        return self.child.pid

    def log(self):
        return pathlib.Path(self.log_file.name).read_text(errors="replace")

    def is_alive(self):
        return self.child.poll() is None

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, seconds=PATIENCE):
        return self.child.wait(seconds)

    def kill(self):
        if self.is_alive():
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()
        if self.child.stdout:
            self.child.stdout.close()
        self.log_file.close()
        pathlib.Path(self.log_file.name).unlink(missing_ok=True)


class Server(Process):
    """`deepinfer serve` (or `gateway`) on any free port; ready when the constructor returns."""

    def __init__(self, *flags, script=None, command="serve", env=None, key=None, wait=True):
        self.key = key
        self.script_file = None
        arguments = [command, "--port", "0"]
        if "--actor-port" not in flags and command == "serve":
            arguments += ["--actor-port", "0"]
        if script is not None:
            self.script_file = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
            json.dump(script, self.script_file)
            self.script_file.close()
            arguments += ["--script", self.script_file.name]
        super().__init__(*arguments, *flags, env=env)
        self.port = self.url = self._client = None
        self.totals = {}
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self, line=READY):
        """Or until it has said another line that names its address."""
        def is_ready():
            found = line.search(self.log())
            if found:
                return found
            if not self.is_alive():
                raise AssertionError(f"{self.arguments} ended with {self.child.returncode}:\n{self.log()}")
            return None

        try:
            found = wait_for(is_ready, f"{self.arguments} is not ready")
        except AssertionError:
            self.kill()
            raise
        self.url, self.port = found[1], int(found[3])

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @contextlib.contextmanager
    def client(self):
        """One for all: making a client of httpx takes longer than most requests."""
        if self._client is None:
            self._client = httpx.Client(base_url=self.url, headers=self.headers, timeout=PATIENCE, verify=False,
                                        limits=httpx.Limits(max_connections=None, max_keepalive_connections=8))
        yield self._client

    def get(self, path, **options):
        with self.client() as it:
            return it.get(path, **options)

    def post(self, path, body=None, **options):
        with self.client() as it:
            return it.post(path, json=body, **options) if body is not None else it.post(path, **options)

    def stats(self):
        reply = self.get("/v1/internal/stats")
        assert reply.status_code == 200, reply.text
        return reply.json()

    def metrics(self):
        """Samples by name, and by (name, labels) where there are labels besides the common ones."""
        reply = self.get("/metrics")
        assert reply.status_code == 200, reply.text
        out = {}
        for family in text_string_to_metric_families(reply.text):
            for it in family.samples:
                labels = {k: v for k, v in it.labels.items() if k not in ("model_name", "engine")}
                name = re.sub(r"^(vllm|deepinfer)[:_]", "", it.name)
                out[(name, *sorted(labels.items()))] = it.value
                if "le" not in labels:
                    out[name] = out.get(name, 0.0) + it.value
        return out

    def chat(self, text, **fields):
        return self.post("/v1/chat/completions", chat_body(text, **fields))

    def complete(self, prompt, **fields):
        return self.post("/v1/completions", {"model": self.model(), "prompt": prompt, **fields})

    def model(self):
        if not hasattr(self, "_model"):
            self._model = self.get("/v1/models").json()["data"][0]["id"]
        return self._model

    def requests(self):
        return self.get("/v1/internal/requests").json()["data"]

    def is_at_rest(self):
        """None where nothing runs and everything has come back, else what has not."""
        stats = self.stats()
        missing = stats["kv_blocks_total"] - stats["kv_blocks_free"] - stats["kv_blocks_cached"]
        metrics = self.metrics()
        left = {name: metrics.get(name, 0) for name in
                ("num_requests_running", "num_requests_waiting", "inflight_steps", "leases_held",
                 "client_chunks_pending", "deferred_release_pending")}
        left = {name: value for name, value in left.items() if value}
        if metrics["http_requests_in_flight"] > 1:  # the one that asks is in flight
            left["http_requests_in_flight"] = metrics["http_requests_in_flight"]
        for name in ("running", "queued", "inflight_steps", "deferred_blocks"):
            if stats[name]:
                left[name] = stats[name]
        if missing:
            left["kv_blocks"] = missing
        if stats["slots_total"] != stats["slots_free"]:
            left["slots"] = stats["slots_total"] - stats["slots_free"]
        return left

    def check_rest(self):
        """The last check of every test: alive, serving, gauges 0, KV back, no wrong read."""
        assert self.is_alive(), f"the server ended with {self.child.returncode}:\n{self.log()}"
        reply = self.chat("ping", max_tokens=2)
        assert reply.status_code == 200, reply.text
        left = {}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            left = self.is_at_rest()
            if not left:
                break
            time.sleep(0.05)
        if left:
            raise NotAtRest(f"still held after {PATIENCE:.0f} s: {left}\n{self.log()[-3000:]}")
        wrong = [it for it in self.log().splitlines() if "scripted model:" in it]
        assert not wrong, wrong

    def stop(self):
        """Ends it politely, where it still runs; its exit code."""
        code = None
        if self.is_alive():
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                code = self.wait()
            except subprocess.TimeoutExpired:
                code = None
        else:
            code = self.child.returncode
        if self._client:
            self._client.close()
        self.kill()
        if self.script_file:
            pathlib.Path(self.script_file.name).unlink(missing_ok=True)
        return code


def chat_body(text, **fields):
    body = {"messages": [{"role": "user", "content": text}] if isinstance(text, str) else text,
            "thinking": {"type": "disabled"}, "max_tokens": 400, "temperature": 0}
    body.update(fields)
    return {name: value for name, value in body.items() if value is not ...}
