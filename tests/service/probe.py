#!/usr/bin/env python3
"""Which features of the first release does a server have? Each is tried for its effect.

  probe.py --spawn                 all of them, on servers that it starts
  probe.py http://127.0.0.1:8000   those that a server shows without preparation
  probe.py --self-test             each probe again, where the feature has been broken on the way:
                                   a probe that still says true proves nothing
  probe.py --only WORD             those whose name has the word

A line is `true` or `false`, section, feature, and what was found. Exit 1 where one is false.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from service import BINARY, PATIENCE, Server, chat_body  # noqa: E402
from wire import Answer, events  # noqa: E402

NEEDS_SPAWN = "needs --spawn"


@dataclasses.dataclass
class Reply:
    """What came back: of HTTP, or of a program (its output, its exit code, its stderr)."""

    status: int
    content: bytes
    headers: dict = dataclasses.field(default_factory=dict)
    stderr: bytes = b""

    @property
    def text(self):
        return self.content.decode(errors="replace")

    def json(self):
        return json.loads(self.content)

    def choice(self):
        expect(self.status == 200, self.text[:200])
        return self.json()["choices"][0]

    def events(self):
        expect(self.status == 200, self.text[:200])
        return events(self.content)

    def answer(self):
        return Answer(self.events())


class Absent(Exception):
    """The feature is not there."""


class NotShown(Exception):
    """Nothing that this server could show."""


def expect(is_so, what="not as it should be"):
    if not is_so:
        raise Absent(what)


class Bed:
    """What probes ask: servers, programs; with a breaker between, in the self-test."""

    def __init__(self, url=None, key=None):
        self.url, self.key = url, key
        self.servers = {}
        self.breaker = None

    def spawn(self, *flags, script=None, key=None, **options):
        if self.url:
            raise NotShown(NEEDS_SPAWN)
        name = (flags, repr(script), key)
        server = self.servers.get(name)
        if server is None or not server.is_alive():
            server = self.servers[name] = Server(*flags, script=script, key=key, **options)
        return server

    def scripted(self, *flags, **options):
        from script import shared_script
        options.setdefault("script", shared_script())
        return self.spawn(*flags, **options)

    def tiny(self, *flags):
        """The embedded model, or the server that was named."""
        return None if self.url else self.spawn("--num-threads", "1", "--max-num-seqs", "16", *flags)

    def broken(self, what, reply):
        if self.breaker:
            self.breaker(what, reply)
        return reply

    def ask(self, server, method, path, body=None, headers=None, content=None):
        base, key = (server.url, server.key) if server else (self.url, self.key)
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        if content is not None:
            sent["content-type"] = "application/json"
        sent.update(headers or {})
        with httpx.Client(base_url=base, timeout=PATIENCE) as client:
            got = client.request(method, path, json=body, content=content, headers=sent)
        lower = {name.lower(): value for name, value in got.headers.items()}
        return self.broken(path, Reply(got.status_code, got.content, lower))

    def get(self, server, path, **options):
        return self.ask(server, "GET", path, **options)

    def post(self, server, path, body, **options):
        return self.ask(server, "POST", path, body, **options)

    def chat(self, server, text, headers=None, **fields):
        return self.post(server, "/v1/chat/completions", chat_body(text, **fields), headers=headers)

    def complete(self, server, prompt, **fields):
        return self.post(server, "/v1/completions", {"prompt": prompt, **fields})

    def metric(self, server, name):
        """Its samples, summed; nothing where there is none."""
        lines = [line for line in self.get(server, "/metrics").text.splitlines()
                 if line.startswith(f"deepinfer:{name}") and line.split("{")[0].split(" ")[0] == f"deepinfer:{name}"]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines) if lines else None

    def run(self, *arguments, env=None, stdin=None, seconds=120):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_")} | (env or {})
        got = subprocess.run([BINARY, *[str(it) for it in arguments]], input=stdin, capture_output=True,
                             env=environment, timeout=seconds, check=False)
        return self.broken(arguments[0], Reply(got.returncode, got.stdout, {}, got.stderr))

    def log(self, server):
        return self.broken("log", Reply(0, server.log().encode())).text

    def wait(self, check, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := check():
                return value
            time.sleep(0.05)
        return None

    def close(self):
        for server in self.servers.values():
            server.stop()


# --- breakers: what a server without the feature would say ---------------------------------------
def refuse(path=None, status=404):
    """The path is not there."""

    def apply(what, reply):
        if path is None or str(what).startswith(path):
            reply.status = status
            reply.content = b'{"error":{"message":"not found","type":"not_found_error","param":null,"code":"not_found"}}'
            reply.headers = {"content-type": "application/json"}
            reply.stderr = b""

    return apply


def swap(old, new="", only=None):
    """Other words in bodies, outputs and headers."""
    old, new = old.encode(), new.encode()

    def apply(what, reply):
        if only is not None and not str(what).startswith(only):
            return
        reply.content = reply.content.replace(old, new)
        reply.stderr = reply.stderr.replace(old, new)
        reply.headers = {k: v.encode().replace(old, new).decode() for k, v in reply.headers.items()}

    return apply


def without_header(name):
    def apply(_, reply):
        reply.headers.pop(name, None)

    return apply


def always(status=None, content=None, only=None):
    """One canned answer."""

    def apply(what, reply):
        if only is not None and not str(what).startswith(only):
            return
        if status is not None:
            reply.status = status
        if content is not None:
            reply.content, reply.stderr = content.encode(), b""

    return apply


def edit(change, only=None):
    """JSON bodies, changed; streams event by event."""

    def apply(what, reply):
        if only is not None and not str(what).startswith(only):
            return
        if reply.content.startswith(b"data: "):
            out = []
            for frame in reply.content.split(b"\n\n"):
                if frame.startswith(b"data: {"):
                    value = json.loads(frame[6:])
                    change(value)
                    frame = b"data: " + json.dumps(value).encode()
                out.append(frame)
            reply.content = b"\n\n".join(out)
            return
        try:
            value = json.loads(reply.content)
        except ValueError:
            return
        if isinstance(value, dict):
            change(value)
        reply.content = json.dumps(value).encode()

    return apply


def same_text(text="same"):
    """Every answer says the same: fields without effect."""

    def change(value):
        for choice in value.get("choices", []):
            if "text" in choice:
                choice["text"] = text
            for kind in ("message", "delta"):
                if choice.get(kind, {}).get("content"):
                    choice[kind]["content"] = text

    return edit(change)


CELLS = []


@dataclasses.dataclass
class Cell:
    section: str
    feature: str
    check: object
    breaker: object
    is_later: bool = False


def cell(section, feature, broken):
    def add(check):
        CELLS.append(Cell(section, feature, check, broken))
        return check

    return add


def later(section, feature, why):
    CELLS.append(Cell(section, feature, why, None, True))


def judge(bed, it):
    """(True, False or None: not shown; what was found)"""
    try:
        return True, str(it.check(bed) or "")
    except NotShown as why:
        return None, str(why)
    except Absent as why:
        return False, str(why)
    except Exception as failure:  # whatever a wrong answer makes of a probe
        place = traceback.extract_tb(failure.__traceback__)[-1]
        return False, f"{type(failure).__name__}: {str(failure)[:160]} ({place.name}:{place.lineno})"


def self_test(bed, cells):
    """How many probes still say true where the feature has been broken, or false where it has not."""
    wrong = 0
    for it in cells:
        if it.is_later:
            continue
        bed.breaker = None
        is_there, found = judge(bed, it)
        bed.breaker = it.breaker
        is_fooled, why = judge(bed, it)
        bed.breaker = None
        is_good = is_there is True and is_fooled is False
        wrong += not is_good
        print(f"{'ok   ' if is_good else 'WRONG'} {it.section} {it.feature}: "
              f"{found if is_there is not True else ''} broken: {why[:110]}", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--spawn", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--key")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if bool(given.url) == (given.spawn or given.self_test):
        parser.error("give a URL, or --spawn or --self-test")
    sys.modules["probe"] = sys.modules["__main__"]  # cells belong to this table
    import probe_cells_api  # noqa: F401
    import probe_cells_tools  # noqa: F401
    cells = [it for it in CELLS if given.only.lower() in f"{it.section} {it.feature}".lower()]
    cells.sort(key=lambda it: it.section)
    bed = Bed(given.url, given.key)
    try:
        if given.self_test:
            wrong = self_test(bed, cells)
            print(f"{len(cells)} probes, {wrong} of no use")
            return 1 if wrong else 0
        rows = []
        for it in cells:
            is_there, found = (None, f"later: {it.check}") if it.is_later else judge(bed, it)
            shown = "later" if it.is_later else {True: "true", False: "false", None: "-"}[is_there]
            rows.append({"has": shown, "section": it.section, "feature": it.feature, "found": found})
            if not given.json:
                print(f"{shown:5} {it.section} {it.feature}{': ' + found if found else ''}", flush=True)
        if given.json:
            print(json.dumps(rows, indent=1))
        counts = {word: sum(row["has"] == word for row in rows) for word in ("true", "false", "-", "later")}
        print(f"{counts['true']} true, {counts['false']} false, {counts['-']} not shown, {counts['later']} later",
              file=sys.stderr)
        return 1 if counts["false"] else 0
    finally:
        bed.close()


if __name__ == "__main__":
    sys.exit(main())
