"""Nodes that know of each other, and several replicas in one."""

import pytest

from checks import answer_of
from cluster import CHAT, FAST_LINKS, PACED, together
from script import FOX
from service import Server, chat_body, free_port, wait_for
from wire import Raw, post


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
    (cache, _), = [(key, value) for key, value in it.metrics().items()
                   if isinstance(key, tuple) and key[0] == "cache_config_info"]
    assert int(dict(cache[1:])["num_gpu_blocks"]) == it.stats()["kv_blocks_total"]
    assert f'model_name="{it.model()}"' in it.get("/metrics").text


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
