"""Several processes: nodes, a gateway before them, and what happens when one of them leaves."""

import concurrent.futures
import signal
import threading
import time

import pytest

from checks import answer_of
from script import FOX
from service import LISTENS, PATIENCE, Server, chat_body, free_port, wait_for
from wire import Answer, Raw, events, frames, post

CHAT = "/v1/chat/completions"
PACED = {"step_ms": 5, "answers": [{"when": "#fox", "say": FOX}, {"when": "#long", "then": "go on"}],
         "otherwise": {"say": "OK."}}
FAST_LINKS = ("--heartbeat-interval", "100ms", "--connection-timeout", "1s")


class Cluster:
    """Nodes and a gateway that sends requests to them."""

    def __init__(self, count, *flags, script=None):
        self.flags = flags
        self.script = script or PACED
        self.ports = [free_port() for _ in range(count)]
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            self.nodes = list(pool.map(self.start_node, range(count)))
        peers = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.gateway = Server("--connect", peers, *FAST_LINKS, command="gateway")
        wait_for(lambda: self.replicas() == count, "the gateway knows every node")

    def start_node(self, i):
        return Server("--actor-port", str(self.ports[i]), "--node-name", f"n{i}", "--max-num-seqs", "16",
                      *FAST_LINKS, *self.flags, script=self.script)

    def replicas(self):
        return self.gateway.get("/health").json()["replicas"]

    def check_rest(self):
        for it in [self.gateway, *self.nodes]:
            it.check_rest()

    def stop(self):
        for it in [self.gateway, *self.nodes]:
            it.stop()


@pytest.fixture
def cluster():
    started = []

    def start(count=3, *flags, **options):
        started.append(Cluster(count, *flags, **options))
        return started[-1]

    yield start
    for it in started:
        it.stop()


def together(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_requests_spread_and_answers_are_those_of_one_node(cluster):
    it = cluster(3, "--no-prefix-cache")
    texts = together(24, lambda i: answer_of(it.gateway.chat(f"#long {i}", max_tokens=12))[0]["message"]["content"])
    alone = [answer_of(it.nodes[0].chat(f"#long {i}", max_tokens=12))[0]["message"]["content"] for i in range(24)]
    assert texts == alone
    assert all(node.metrics()["request_success_total"] >= 2 for node in it.nodes)
    listed = it.gateway.get("/v1/models").json()["data"]
    assert len(listed) == 1
    it.check_rest()


def test_a_client_that_is_killed_leaves_nothing(cluster):
    it = cluster(2)
    raws = [Raw(it.gateway.port) for _ in range(12)]
    for raw in raws:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=8000)))
        raw.until(b"data: ")
    for raw in raws:
        raw.reset()
    it.check_rest()


def test_a_killed_node_ends_its_requests_and_others_go_on(cluster):
    it = cluster(3, "--no-prefix-cache")
    raws = [Raw(it.gateway.port) for _ in range(12)]
    for i, raw in enumerate(raws):
        raw.send(post(CHAT, chat_body(f"#long {i}", stream=True, max_tokens=120)))
        raw.head()
        raw.chunk()
    it.nodes[0].kill()
    ends = {"whole": 0, "lost": 0}
    for raw in raws:
        data = b""
        while piece := raw.chunk():
            data += piece
        last = frames(data)[-1]
        if last == b"[DONE]":
            ends["whole"] += 1
        else:
            assert b'"rank_lost"' in last, last
            ends["lost"] += 1
        raw.close()
    assert ends["whole"] and ends["lost"], ends
    wait_for(lambda: it.replicas() == 2, "one node is gone")
    assert all(one.status_code == 200 for one in together(12, lambda i: it.gateway.chat("#fox")))
    it.nodes[0] = it.start_node(0)
    wait_for(lambda: it.replicas() == 3, "it is back")
    it.check_rest()


def test_a_stopped_node_is_given_up_and_taken_back(cluster):
    it = cluster(2)
    it.nodes[1].signal(signal.SIGSTOP)
    try:
        wait_for(lambda: it.replicas() == 1, "its silence is noticed")
        assert all(one.status_code == 200 for one in together(8, lambda i: it.gateway.chat(f"#fox {i}")))
    finally:
        it.nodes[1].signal(signal.SIGCONT)
    wait_for(lambda: it.replicas() == 2, "it is back")
    it.check_rest()


def test_a_snapshot_of_a_gateway_has_every_node(cluster):
    it = cluster(3)
    together(12, lambda i: it.gateway.chat(f"#fox {i}"))

    def nodes():
        reply = it.gateway.get("/v1/internal/snapshot")
        assert reply.status_code == 200, reply.text
        shown = reply.json()
        parts = [node["snapshot"] for node in shown["nodes"] if node["snapshot"]]
        assert shown["totals"]["steps"] == sum(part["totals"]["steps"] for part in parts)
        assert shown["kv"]["total"] == sum(part["kv"]["total"] for part in parts)
        return shown["nodes"]

    listed = nodes()
    assert [node["name"] for node in listed] == ["n0", "n1", "n2"]
    assert [node["address"] for node in listed] == [f"127.0.0.1:{port}" for port in it.ports]
    for node in listed:
        assert node["state"] == "ready" and node["takes_requests"] and not node["reason"]
        part = node["snapshot"]
        assert part["replicas"][0]["state"] == "up" and part["kv"]["total"] > 0 and part["model"]["names"]
        assert part["totals"]["steps"] > 0 and part["steps"], node["name"]
    it.nodes[1].signal(signal.SIGSTOP)
    try:
        silent = nodes()[1]
        assert silent["snapshot"] is None and silent["state"] == "down" and silent["reason"], silent
        assert [node["state"] for node in nodes()] == ["ready", "down", "ready"]
    finally:
        it.nodes[1].signal(signal.SIGCONT)
    wait_for(lambda: nodes()[1]["takes_requests"], "it is back")
    it.nodes[2].kill()
    wait_for(lambda: "nobody answers" in nodes()[2]["reason"], "it is told why")
    it.nodes[2] = it.start_node(2)
    wait_for(lambda: nodes()[2]["takes_requests"], "it is back")
    assert nodes()[2]["snapshot"]["health"]["node"] == "n2"
    it.check_rest()


def test_a_snapshot_of_a_gateway_knows_where_requests_are(cluster):
    it = cluster(2, "--max-num-seqs", "1")
    raws = [Raw(it.gateway.port) for _ in range(3)]
    for raw in raws:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=8000)))

    def listed():
        rows = it.gateway.get("/v1/internal/snapshot").json()["requests"]
        return rows if sum(row["state"] == "decode" for row in rows) == 2 and len(rows) == 3 else None

    rows = wait_for(listed, "two run")
    assert {row["node"] for row in rows if row["state"] == "decode"} == {"n0", "n1"}
    assert all(row["output_tokens"] > 0 or row["state"] != "decode" for row in rows)
    for row in rows:
        with it.gateway.client() as client:
            assert client.delete(f"/v1/internal/requests/{row['id']}").status_code == 200
    for raw in raws:
        raw.close()
    it.check_rest()


def test_half_open_connections_to_the_actor_port(cluster):
    """Whoever connects and says nothing, or nonsense, hinders nobody."""
    it = cluster(1)
    raws = [Raw(it.ports[0]) for _ in range(20)]
    for i, raw in enumerate(raws):
        if i % 2:
            raw.send(b"\x00\xff" * 300)
    assert answer_of(it.gateway.chat("#fox"))[0]["message"]["content"] == FOX
    for raw in raws:
        raw.reset()
    it.check_rest()


def test_drain_under_load(cluster):
    it = cluster(2)
    raws = [Raw(it.nodes[0].port) for _ in range(6)]
    for raw in raws:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=80)))
        raw.head()
        raw.chunk()
    it.nodes[0].signal(signal.SIGTERM)
    texts = together(10, lambda i: it.gateway.chat(f"#fox {i}"))
    assert all(one.status_code == 200 for one in texts), [one.text[:200] for one in texts]
    for raw in raws:
        data = b""
        while piece := raw.chunk():
            data += piece
        assert data.endswith(b"data: [DONE]\n\n")
        raw.close()
    assert it.nodes[0].wait() == 0
    it.nodes.pop(0).stop()
    it.check_rest()


def test_a_rolling_restart_fails_no_request(cluster):
    it = cluster(3)
    failures, count = [], [0]
    is_over = threading.Event()

    def load(i):
        while not is_over.is_set():
            reply = it.gateway.chat(f"#fox {i}", max_tokens=40)
            count[0] += 1
            if reply.status_code != 200:
                failures.append(reply.text[:300])

    workers = [threading.Thread(target=load, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    try:
        for i in range(3):
            assert it.nodes[i].stop() == 0
            wait_for(lambda: it.replicas() == 2, "one is gone")
            it.nodes[i] = it.start_node(i)
            wait_for(lambda: it.replicas() == 3, "it is back")
    finally:
        is_over.set()
        for worker in workers:
            worker.join()
    assert not failures, (len(failures), count[0], failures[0])
    assert count[0] > 10
    it.check_rest()


def test_a_gateway_is_ready_while_a_node_answers():
    port = free_port()
    gateway = Server("--connect", f"127.0.0.1:{port}", *FAST_LINKS, command="gateway", wait=False)
    try:
        gateway.wait_until_ready(LISTENS)
        reply = gateway.post(CHAT, chat_body("#fox"))
        assert reply.status_code == 503 and int(reply.headers["retry-after"]) >= 1
        wait_for(lambda: "nobody answers" in gateway.get("/health/ready").json()["stage"], "it says why")
        assert gateway.get("/health/ready").status_code == 503
        assert gateway.get("/health").json()["status"] == "loading"  # it may come yet
        assert gateway.get("/health/live").status_code == 200
        assert 'model_name=""' in gateway.get("/metrics").text
        assert "Ready: " not in gateway.log()
        for turn in (1, 2):
            node = Server("--actor-port", str(port), script=PACED)
            try:
                wait_for(lambda: gateway.log().count("Ready: ") == turn, "it says that it has found the node")
                assert gateway.get("/health/ready").status_code == 200
                assert answer_of(gateway.chat("#fox"))[0]["message"]["content"] == FOX
                assert 'model_name="scripted"' in gateway.get("/metrics").text
            finally:
                node.stop()
            wait_for(lambda: gateway.get("/health/ready").status_code == 503, "none is left")
            wait_for(lambda: "not ready: no node takes requests" in gateway.log(), "it says so")
    finally:
        gateway.stop()


def test_a_gateway_takes_nodes_of_another_model_when_the_last_of_the_first_has_gone():
    ports = [free_port(), free_port()]
    nodes = [None, None]

    def start(i, name):
        nodes[i] = Server("--actor-port", str(ports[i]), "--served-model-name", name, *FAST_LINKS, script=PACED)

    def replicas():
        return gateway.get("/health").json()["replicas"]

    def listed():
        return [one["id"] for one in gateway.get("/v1/models").json()["data"]]

    start(0, "first")
    gateway = Server("--connect", ",".join(f"127.0.0.1:{port}" for port in reversed(ports)), *FAST_LINKS,
                     command="gateway")
    try:
        start(1, "second")
        wait_for(lambda: "it serves second, expected first" in gateway.log(), "it is refused")
        assert replicas() == 1
        assert listed() == ["first"]  # though the one that was refused is asked before it
        nodes[0].kill()
        wait_for(lambda: replicas() == 1 and listed() == ["second"], "the other model is taken")
        assert answer_of(gateway.chat("#fox"))[0]["message"]["content"] == FOX
        assert 'model_name="second"' in gateway.get("/metrics").text
        start(0, "second")
        wait_for(lambda: replicas() == 2, "both are taken")
    finally:
        for it in [gateway, *nodes]:
            if it is not None:
                it.stop()


def test_a_gateway_tells_what_it_has_open(cluster):
    it = cluster(2)
    with Raw(it.gateway.port) as raw:
        raw.send(post(CHAT, chat_body("#long", stream=True, max_tokens=8000)))
        raw.until(b"data: ")

        def listed():
            return it.gateway.get("/v1/internal/requests").json()["data"]

        wait_for(lambda: len(listed()) == 1 and listed()[0]["output_tokens"] > 3, "tokens are counted")
        drawn = listed()[0]["seed"]
        assert drawn in [one["seed"] for node in it.nodes for one in node.get("/v1/internal/requests").json()["data"]]
        raw.reset()
    wait_for(lambda: f" seed={drawn} " in it.gateway.log(), "its end is logged with the seed")
    it.check_rest()


def nodes_counted(server):
    return tuple(server.metrics()[("cluster_nodes", ("state", state))] for state in ("up", "down"))


def test_every_node_is_counted_once(cluster, own):
    it = cluster(2)
    assert nodes_counted(it.gateway) == (2, 0)  # it is none itself
    assert nodes_counted(it.nodes[0]) == (1, 0)
    it.nodes[0].kill()
    wait_for(lambda: nodes_counted(it.gateway) == (1, 1), "one is dead")
    it.nodes[0] = it.start_node(0)
    wait_for(lambda: nodes_counted(it.gateway) == (2, 0), "it is back")
    peers = own("--peer", f"127.0.0.1:{it.ports[0]}", "--peer", f"127.0.0.1:{it.ports[1]}", *FAST_LINKS, script=PACED)
    wait_for(lambda: nodes_counted(peers) == (3, 0), "a node with peers counts itself")
    it.nodes[1].kill()
    wait_for(lambda: nodes_counted(peers) == (2, 1), "one is dead")
    it.nodes[1] = it.start_node(1)
    wait_for(lambda: nodes_counted(peers) == (3, 0), "it is back")


def test_limits_of_a_gateway_change_while_it_runs(cluster):
    it = cluster(1)

    def change(key, value):
        return it.gateway.post("/v1/internal/config", {"key": key, "value": value})

    assert change("server.max_queued_requests", 0).status_code == 400
    reply = change("server.max_queued_requests", 7)
    assert reply.status_code == 200 and "7 instead of 1024" in reply.json()["message"]
    assert it.gateway.get("/v1/internal/config").json()["server.max_queued_requests"]["value"] == 7
    unknown = change("server.max_queued_request", 7)
    assert unknown.status_code == 404 and "did you mean" in unknown.text
    fixed = change("server.port", 7)
    assert fixed.status_code == 400 and "needs a restart" in fixed.text
    of_nodes = change("engine.depth", 1)
    assert of_nodes.status_code == 400 and "a gateway has no use of it" in of_nodes.text


def test_peers_of_each_other_hand_nothing_back(own):
    """Each is the other's peer, and both are full: every request is answered, where it was sent first or next."""
    ports = [free_port(), free_port()]
    flags = ("--routing", "round_robin", "--max-num-seqs", "4", *FAST_LINKS)
    pair = [own("--actor-port", str(ports[i]), "--node-name", f"n{i}", "--peer", f"127.0.0.1:{ports[1 - i]}", *flags,
                script=PACED) for i in range(2)]
    for one in pair:
        wait_for(lambda: one.get("/health").json()["replicas"] == 2, "it knows its peer")
    replies = together(64, lambda i: pair[i % 2].chat(f"#fox {i}"))
    assert all(one.status_code == 200 for one in replies), [one.text for one in replies if one.status_code != 200][:3]
    assert {answer_of(one)[0]["message"]["content"] for one in replies} == {FOX}
    for one in pair:
        one.check_rest()


def test_a_peer_of_a_serving_node(own):
    """serve --peer: a node that computes and sends requests on."""
    port = free_port()
    other = own("--actor-port", str(port), script=PACED)
    it = own("--peer", f"127.0.0.1:{port}", "--routing", "round_robin", *FAST_LINKS, script=PACED)
    wait_for(lambda: it.get("/health").json()["replicas"] == 2, "it knows its peer")
    replies = together(12, lambda i: it.chat(f"#fox {i}"))
    assert all(one.status_code == 200 for one in replies)
    assert other.metrics()["request_success_total"] >= 3
    for one in (it, other):
        one.check_rest()


def test_a_snapshot_of_a_node_names_its_peers_and_tells_of_its_replicas(own):
    port = free_port()
    other = own("--actor-port", str(port), "--node-name", "other", *FAST_LINKS, script=PACED)
    it = own("--peer", f"127.0.0.1:{port}", "--node-name", "it", "--dp-size", "2", *FAST_LINKS, script=PACED)

    def snapshot(one):
        return one.get("/v1/internal/snapshot").json()

    def peer():
        return snapshot(it)["nodes"][1]

    wait_for(lambda: peer()["takes_requests"], "it knows its peer")
    shown = snapshot(it)
    assert [(node["name"], node["origin"]) for node in shown["nodes"]] == [("it", "self"), ("other", "peer")]
    assert [one["state"] for one in shown["replicas"]] == ["up", "up"]
    assert sum(one["kv"]["total"] for one in shown["replicas"]) == shown["kv"]["total"] == it.stats()["kv_blocks_total"]
    assert snapshot(other)["nodes"] == [] and len(snapshot(other)["replicas"]) == 1
    other.kill()
    wait_for(lambda: peer()["state"] == "down" and peer()["reason"], "it is told of as down")


@pytest.mark.parametrize("flags, why", [
    (("--served-model-name", "other"), "it serves other, expected scripted"),
    (("--max-model-len", "128"), "its context holds 128 tokens, expected at least 2048"),
    ((), "it has other weights")])
def test_a_node_that_serves_something_else_gets_no_requests(own, flags, why):
    length = () if "--max-model-len" in flags else ("--max-model-len", "2048")
    strange = {**PACED, "otherwise": {"say": "Something else."}}
    ports = [free_port(), free_port()]
    node = own("--actor-port", str(ports[0]), "--max-model-len", "2048", *FAST_LINKS, script=PACED)
    gateway = Server("--connect", f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", *FAST_LINKS, command="gateway")
    try:
        other = own("--actor-port", str(ports[1]), *flags, *length, *FAST_LINKS, script=strange)
        before = other.metrics()["request_success_total"]  # its own first request
        peer = own("--peer", f"127.0.0.1:{ports[1]}", "--routing", "round_robin", "--max-model-len", "2048",
                   *FAST_LINKS, script=PACED)
        for one in (peer, gateway):
            wait_for(lambda: why in one.log(), "it says why")
            answers = together(12, lambda i: answer_of(one.chat(f"{i}"))[0]["message"]["content"])
            assert set(answers) == {"OK."}
    finally:
        gateway.stop()
    assert other.metrics()["request_success_total"] == before
    for one in (node, other, peer):
        one.check_rest()


def test_a_gateway_without_a_node_refuses_at_once(cluster):
    it = cluster(1)
    assert answer_of(it.gateway.chat("#fox"))[0]["message"]["content"] == FOX
    it.nodes[0].kill()
    wait_for(lambda: it.gateway.get("/health/ready").status_code == 503, "it knows")
    reply = it.gateway.post(CHAT, chat_body("#fox"))
    assert reply.status_code == 503 and reply.json()["error"]["code"] == "not_ready", reply.text
    assert int(reply.headers["retry-after"]) >= 1
    it.nodes[0] = it.start_node(0)
    wait_for(lambda: it.replicas() == 1, "it is back")
    assert answer_of(it.gateway.chat("#fox"))[0]["message"]["content"] == FOX
    it.check_rest()


def test_two_nodes_of_one_name_take_no_turns(own):
    port = free_port()
    base = own("--actor-port", str(port), "--node-name", "base", *FAST_LINKS, script=PACED)
    flags = ("--join", f"127.0.0.1:{port}", "--node-name", "same", *FAST_LINKS)
    first = own(*flags, script=PACED)
    wait_for(lambda: base.get("/health").json()["replicas"] == 2, "the first has joined")
    second = own(*flags, script=PACED)
    before = second.metrics()["request_success_total"]
    wait_for(lambda: "is called same, too" in second.log(), "it says why it has not joined")
    replies = together(24, lambda i: base.chat(f"#fox {i}"))
    assert all(one.status_code == 200 for one in replies)
    assert second.metrics()["request_success_total"] == before
    for one in (base, first, second):
        one.check_rest()


def test_replicas_in_one_node(serve):
    it = serve("--dp-size", "3", "--routing", "round_robin", "--max-num-seqs", "6", script=PACED)
    replies = together(24, lambda i: it.post(CHAT, {**chat_body("#long", max_tokens=20), "seed": i}))
    assert all(one.status_code == 200 for one in replies)
    assert len({one.json()["choices"][0]["message"]["content"] for one in replies}) == 1
    sent = {key: value for key, value in it.metrics().items()
            if isinstance(key, tuple) and key[0] == "router_requests_total"}
    assert len(sent) == 3 and all(value >= 8 for value in sent.values()), sent


def test_streams_through_a_gateway_are_gapless(cluster):
    it = cluster(2)

    def ask(i):
        with Raw(it.gateway.port) as raw:
            raw.send(post(CHAT, chat_body(f"#fox {i}", stream=True)))
            return Answer(events(raw.response()[2])).text[0]

    assert together(16, ask) == [FOX] * 16
    began = time.monotonic()
    it.check_rest()
    assert time.monotonic() - began < PATIENCE


def test_no_more_requests_wait_than_may(own):
    it = own("--max-num-seqs", "2", "--max-queued-requests", "3", script=PACED)
    raws = [Raw(it.port) for _ in range(5)]
    for i, raw in enumerate(raws):
        raw.send(post(CHAT, chat_body(f"#long {i}", stream=True, max_tokens=8000)))
        if i < 2:
            raw.until(b"data: ")
    wait_for(lambda: it.metrics()["num_requests_waiting"] == 3, "two run, three wait")
    refused = it.post(CHAT, chat_body("#fox"))
    assert refused.status_code == 429 and refused.json()["error"]["code"] == "queue_full", refused.text
    assert "3 requests wait, at most 3 may" in refused.json()["error"]["message"]
    for raw in raws:
        raw.reset()
    it.check_rest()
