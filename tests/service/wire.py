"""HTTP by hand: what clients' libraries hide. Sockets, responses as bytes, server-sent events."""

import json
import re
import socket
import struct
import time

from service import PATIENCE


class Raw:
    """A connection to a server."""

    def __init__(self, port, receive_buffer=None, timeout=PATIENCE):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(("127.0.0.1", port))
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, *pieces):
        for piece in pieces:
            self.socket.sendall(piece if isinstance(piece, bytes) else piece.encode())

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def more(self):
        """False at the end."""
        got = self.socket.recv(65536)
        self.buffer += got
        return bool(got)

    def until(self, mark):
        while mark not in self.buffer:
            if not self.more():
                raise EOFError(f"closed before {mark!r}: {self.buffer[-300:]!r}")
        at = self.buffer.index(mark) + len(mark)
        out, self.buffer = self.buffer[:at], self.buffer[at:]
        return out

    def exactly(self, count):
        while len(self.buffer) < count:
            if not self.more():
                raise EOFError("closed within a body")
        out, self.buffer = self.buffer[:count], self.buffer[count:]
        return out

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            if line:
                name, value = line.split(":", 1)
                headers[name.lower()] = value.strip()
        return int(lines[0].split(" ")[1]), headers

    def response(self, is_head=False):
        """(status, headers, body) of the next one; interim ones are skipped."""
        status, headers = self.head()
        while 100 <= status < 200:
            status, headers = self.head()
        if is_head or status in (204, 304):
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while piece := self.chunk():
                body += piece
            return status, headers, body
        if "content-length" in headers:
            return status, headers, self.exactly(int(headers["content-length"]))
        while self.more():
            pass
        body, self.buffer = self.buffer, b""
        return status, headers, body

    def chunk(self):
        """The next chunk of a chunked body; b"" behind the last."""
        size = int(self.until(b"\r\n").split(b";")[0], 16)
        piece = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return piece

    def is_closed(self, seconds=PATIENCE):
        """Whether the server closes within so many seconds; what it sends before is dropped."""
        self.socket.settimeout(0.05)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if not self.more():
                    return True
            except TimeoutError:
                continue
            except OSError:
                return True
        return False


def post(path, body, *headers, version="1.1"):
    """The bytes of a POST."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", "Content-Type: application/json",
             *headers]
    if not any(it.lower().startswith(("content-length", "transfer-encoding")) for it in headers):
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


def get(path, *headers, method="GET", version="1.1"):
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: localhost", *headers, "",
                        ""]).encode("latin-1")


FRAME = re.compile(rb"data: [^\r\n]+")


def frames(body):
    """Payloads of a whole stream, every byte of which must be a frame or a comment."""
    assert body.endswith(b"\n\n"), body[-80:]
    out = []
    for frame in body[:-2].split(b"\n\n"):
        if frame.startswith(b":"):
            assert b"\n" not in frame and b"\r" not in frame, frame
            continue
        assert FRAME.fullmatch(frame), frame[:200]
        out.append(frame[len(b"data: "):])
    return out


def events(body):
    """Chunks of a stream that ends as it should."""
    payloads = frames(body)
    assert payloads[-1] == b"[DONE]", payloads[-1][:300]
    return [json.loads(it) for it in payloads[:-1]]


class Answer:
    """A stream put together, by choice."""

    def __init__(self, chunks):
        self.chunks = chunks
        self.usage = None
        self.text, self.reasoning, self.finish, self.calls, self.logprobs = {}, {}, {}, {}, {}
        for chunk in chunks:
            assert {"id", "object", "created", "model", "choices"} <= set(chunk), chunk
            assert chunk["id"] == chunks[0]["id"] and chunk["model"] == chunks[0]["model"]
            if chunk.get("usage"):
                assert self.usage is None
                self.usage = chunk["usage"]
            for choice in chunk["choices"]:
                self.add(choice)

    def add(self, choice):
        index = choice["index"]
        assert index not in self.finish, f"choice {index} goes on behind its finish"
        delta = choice.get("delta", {})
        text = choice.get("text", delta.get("content")) or ""
        self.text[index] = self.text.get(index, "") + text
        self.reasoning[index] = self.reasoning.get(index, "") + (delta.get("reasoning_content") or "")
        for it in delta.get("tool_calls") or []:
            call = self.calls.setdefault(index, {}).setdefault(it["index"], {"arguments": ""})
            if "id" in it:
                assert "id" not in call and it["function"]["name"], it
                call.update(id=it["id"], name=it["function"]["name"])
            call["arguments"] += it["function"].get("arguments") or ""
        if choice.get("logprobs"):
            self.logprobs.setdefault(index, []).append(choice["logprobs"])
        assert "finish_reason" in choice, choice
        if choice["finish_reason"] is not None:
            assert choice["finish_reason"] in ("stop", "length", "tool_calls",
                                               "insufficient_system_resource"), choice
            self.finish[index] = choice["finish_reason"]


def stream(server, path, body, **options):
    """A streamed answer, whole."""
    body = {**body, "stream": True}
    with server.client() as client:
        reply = client.post(path, json=body, **options)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    return Answer(events(reply.content))
