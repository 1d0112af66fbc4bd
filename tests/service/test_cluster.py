"""Nodes and a gateway before them, and what happens when one of them leaves."""

import concurrent.futures
import signal
import threading
import time

from checks import answer_of
from cluster import CHAT, FAST_LINKS, PACED, together
from script import FOX
from service import LISTENS, PATIENCE, Server, chat_body, free_port, wait_for
from wire import Answer, Raw, events, frames, post


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
        """None while the only node that takes requests is dead and nobody has noticed."""
        reply = gateway.get("/v1/models")
        assert reply.status_code == 200 or reply.json()["error"]["code"] in ("rank_lost", "not_ready"), reply.text
        return [one["id"] for one in reply.json()["data"]] if reply.status_code == 200 else None

    start(0, "first")
    gateway = Server("--connect", ",".join(f"127.0.0.1:{port}" for port in reversed(ports)), *FAST_LINKS,
                     command="gateway")
    try:
        start(1, "second")
        wait_for(lambda: "it serves second, expected first" in gateway.log(), "it is refused")
        assert replicas() == 1
        assert listed() == ["first"]  # though the one that was refused is asked before it
        nodes[0].kill()
        # Listed it may be before it is judged, as what any node that answers has.
        wait_for(lambda: listed() == ["second"] and replicas() == 1, "the other model is taken")
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


def test_shares_are_fair_behind_a_gateway_with_default_settings(own):
    port = free_port()
    node = own("--actor-port", str(port), "--max-num-seqs", "4", *FAST_LINKS, script=PACED)
    gateway = Server("--connect", f"127.0.0.1:{port}", "--api-key", "alice=a", "--api-key", "bob=b", *FAST_LINKS,
                     command="gateway", key="a")
    order = []

    def ask(name, i):
        reply = gateway.post(CHAT, chat_body(f"#long {i}", max_tokens=20), headers={"authorization": f"Bearer {name[0]}"})
        assert reply.status_code == 200, reply.text
        order.append(name)

    try:
        with concurrent.futures.ThreadPoolExecutor(41) as pool:
            crowd = [pool.submit(ask, "alice", i) for i in range(40)]
            wait_for(lambda: len(order) >= 4, "she is served")
            before = len(order)
            pool.submit(ask, "bob", 0).result()
            between = order.index("bob") - before
            for one in crowd:
                one.result()
        assert between <= 16, order
    finally:
        gateway.stop()
    node.check_rest()


def test_a_gateway_takes_the_file_of_a_node(cluster, tmp_path):
    """Its settings of the actor port are the node's: they have no effect here."""
    it = cluster(1)
    file = tmp_path / "node.yaml"
    file.write_text(f"actor:\n  port: {it.ports[0]}\n  peers: ['127.0.0.1:{it.ports[0]}']\n"
                    f"  join: ['127.0.0.1:{it.ports[0]}']\n")
    gateway = Server("--config", str(file), "--connect", f"127.0.0.1:{it.ports[0]}", *FAST_LINKS, command="gateway",
                     env={"DEEPINFER_PEER": "127.0.0.1:1"})
    try:
        assert answer_of(gateway.chat("#fox"))[0]["message"]["content"] == FOX
        assert "actor.peers" in gateway.log()
    finally:
        gateway.stop()


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
