"""Nodes and a gateway before them, and what tests of several processes share."""

import concurrent.futures

from script import FOX
from service import Server, free_port, wait_for

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


def together(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))
