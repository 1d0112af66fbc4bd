#!/usr/bin/env python3
"""The dashboard of a real gateway, whose nodes leave and come, in a headless Chromium.

    python3 tests/ui/gateway_test.py build/release/bin/deepinfer [--pictures DIR]

Exits with 77 where there is no Chromium."""
import argparse
import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import checks  # noqa: E402
from browser import Browser, find_chromium  # noqa: E402
from checks import NODES_SHOWN, TEXT, TILE, check_panels, check_picture, check_quiet, check_width  # noqa: E402

PATIENCE = 120  # seconds that a process may take to start
SCRIPT = {"step_ms": 20, "answers": [{"when": "#long", "then": "go on"}], "otherwise": {"say": "It is 12."}}
FAST_LINKS = ["--heartbeat-interval", "100ms", "--connection-timeout", "1s"]
LINE = NODES_SHOWN + ".find(it => it[0] === %r)"


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Process:
    """`deepinfer ARGUMENTS`; ready when the constructor returns, unless it need not wait."""

    def __init__(self, *arguments, waits=True):
        self.log = tempfile.NamedTemporaryFile("w+")
        self.child = subprocess.Popen([str(it) for it in arguments], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=self.log)
        if waits:
            self.url = self.wait_for(r"Ready: (http://\S+)")

    def wait_for(self, pattern):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.child.poll() is None:
            found = re.search(pattern, pathlib.Path(self.log.name).read_text())
            if found:
                return found.group(1)
            time.sleep(0.05)
        raise AssertionError(f"{self.child.args}: no {pattern}: {pathlib.Path(self.log.name).read_text()}")

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.log.close()


class Service:
    """Two nodes and a gateway before them."""

    def __init__(self, binary, stack):
        self.binary, self.stack = binary, stack
        self.script = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".json"))
        json.dump(SCRIPT, self.script)
        self.script.flush()
        self.ports = [free_port(), free_port()]
        self.nodes = [self.start_node(i) for i in range(2)]
        connect = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.gateway = self.start("gateway", "--port", 0, "--connect", connect, *FAST_LINKS)

    def start(self, *arguments, **options):
        it = Process(self.binary, *arguments, **options)
        self.stack.callback(it.kill)
        return it

    def start_node(self, i, **options):
        return self.start("serve", "--port", 0, "--actor-port", self.ports[i], "--node-name", f"n{i}",
                          "--script", self.script.name, *FAST_LINKS, **options)

    def ask_for_long(self):
        """A request that goes on; the answer that streams."""
        body = {"messages": [{"role": "user", "content": "#long"}], "stream": True, "max_tokens": 8_000,
                "thinking": {"type": "disabled"}}
        request = urllib.request.Request(self.gateway.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return self.stack.enter_context(urllib.request.urlopen(request, timeout=PATIENCE))


def a_node_leaves_while_the_page_is_open_and_a_new_one_comes(browser, service):
    page = browser.page()
    page.open(service.gateway.url, 1280, 1900)
    page.wait(TEXT % "state" + " === 'ready'", "both nodes are there")
    for _ in range(4):
        service.ask_for_long()
    page.wait(TILE % "running" + " === '4'", "four requests run")
    page.wait("[0, 1].every(i => now.nodes[i].snapshot.running === 2)", "each node has its share")
    page.wait("['n0', 'n1'].every(name => [...document.querySelectorAll('#requests .at-node')].filter("
              "it => it.textContent === name).length === 2)", "the table says where they are")
    page.wait("document.querySelectorAll('#chart rect.forward').length > 8", "steps are drawn")
    check_panels(page, has_nodes=True)
    check_picture(page, "gateway-before")
    steps = "now.nodes[0].snapshot.totals.steps"
    before = page.value(steps)

    service.nodes[1].kill()
    page.wait(TEXT % "state" + " === 'ready, 1 of 2 nodes'", "the page says so")
    page.wait(LINE % "n1" + "[1] === 'down'", "it says which")
    page.wait("now.nodes[1].reason && %s[2] === now.nodes[1].reason" % (LINE % "n1"), "it says why")
    page.wait(TILE % "running" + " === '2'", "its requests have ended")
    page.wait(f"{steps} > {before}", "the other goes on")
    page.value("document.getElementById('words').value = '7 + 5?'; document.getElementById('chat').requestSubmit()")
    page.wait("document.querySelector('.said.assistant .usage')?.textContent.includes('tok/s')", "it answers")
    check_panels(page, has_nodes=True)
    check_width(page, "gateway-one-down", 1280)
    check_picture(page, "gateway-one-down")

    service.nodes[1] = service.start_node(1)
    page.wait(TEXT % "state" + " === 'ready'", "it is seen again")
    page.wait(LINE % "n1" + "[1] === 'ready'", "its line is as before")
    service.ask_for_long()
    page.wait("now.nodes[1].snapshot.running === 1", "it gets requests")
    page.wait("[...document.getElementById('rank').options].some(it => it.textContent === 'n1')", "its steps are there")
    check_panels(page, has_nodes=True)
    check_quiet(page)


def a_gateway_whose_nodes_have_all_left_says_so(browser, service):
    for node in service.nodes:
        node.kill()
    page = browser.page()
    page.open(service.gateway.url, 360, 2600, "dark")
    page.wait(TEXT % "state" + " === 'no node ready'", "no node is left")
    page.wait(TEXT % "notice" + ".includes('no replica')", "it says why")
    page.wait(NODES_SHOWN + ".slice(1).every(it => it[1] === 'down')", "both are down")
    check_panels(page, has_nodes=True)
    check_width(page, "gateway-none", 360)
    check_picture(page, "gateway-none", True)
    service.nodes[0] = service.start_node(0)
    page.wait(TEXT % "state" + " === 'ready, 1 of 2 nodes'", "one is back")
    check_quiet(page)


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("binary", type=pathlib.Path)
    flags.add_argument("--pictures", type=pathlib.Path, help="a folder to keep screenshots in")
    given = flags.parse_args()
    checks.keep_pictures(given.pictures)
    if find_chromium() is None:
        print("SKIPPED: there is no Chromium here (Debian: apt-get install chromium)")
        return 77
    with contextlib.ExitStack() as stack:
        browser = Browser()
        stack.callback(browser.close)
        service = Service(given.binary, stack)
        for test in (a_node_leaves_while_the_page_is_open_and_a_new_one_comes,
                     a_gateway_whose_nodes_have_all_left_says_so):
            test(browser, service)
            browser.close_tabs()
            print("passed: " + test.__name__, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
