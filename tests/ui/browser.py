"""A headless Chromium, driven over its DevTools protocol with nothing but the standard library."""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
import zlib


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Socket:
    """The client's side of a websocket: whole text messages."""

    def __init__(self, url, timeout):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.link = socket.create_connection((name, int(port)), timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        self.link.sendall((f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
                           f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                           "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.link.recv(4096)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        assert b" 101 " in head.split(b"\r\n")[0], head

    def send(self, text):
        data = text.encode()
        if len(data) < 126:
            head = struct.pack("!BB", 0x81, 0x80 | len(data))
        elif len(data) < 1 << 16:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, len(data))
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, len(data))
        # A mask of zeros is a mask: the peer is on this machine.
        self.link.sendall(head + bytes(4) + data)

    def take(self, count):
        while len(self.buffer) < count:
            piece = self.link.recv(1 << 16)
            if not piece:
                raise ConnectionError("the browser has closed its socket")
            self.buffer += piece
        out, self.buffer = self.buffer[:count], self.buffer[count:]
        return out

    def receive(self):
        text = b""
        while True:
            first, second = self.take(2)
            size = second & 0x7F
            if size == 126:
                size = struct.unpack("!H", self.take(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", self.take(8))[0]
            data = self.take(size)
            if first & 0x0F in (0, 1):
                text += data
                if first & 0x80:
                    return text.decode()


class Page:
    """One tab. `problems` are errors of its console and scripts so far."""

    def __init__(self, url, timeout):
        self.socket = Socket(url, timeout)
        self.timeout = timeout
        self.last = 0
        self.problems = []
        self.answers_dialogs = True
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": params}))
        wanted = self.last
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == wanted:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.problems.append(str([it.get("value") for it in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Page.javascriptDialogOpening":
            # Not through call(): its answer comes after that of what opened the dialog.
            self.last += 1
            self.socket.send(json.dumps({"id": self.last, "method": "Page.handleJavaScriptDialog",
                                         "params": {"accept": self.answers_dialogs}}))

    def value(self, script):
        out = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in out:
            raise RuntimeError(f"{script}: {out['exceptionDetails']}")
        return out["result"].get("value")

    def wait(self, script, what, patience=30):
        """Until the script gives something true."""
        end = time.monotonic() + patience
        while True:
            problem = None
            try:
                found = self.value(script)
                if found:
                    return found
            except RuntimeError as why:  # its elements are not there yet
                problem = why
            if time.monotonic() > end:
                text = self.value("document.body.innerText.slice(0, 300)")
                raise AssertionError(f"{what}: never so within {patience} s; {problem or ''}; page: {text!r}")
            time.sleep(0.1)

    def open(self, url, width=1280, height=1400, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)

    def press(self, key, text=None):
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def mouse(self, kind, x, y):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


class Browser:
    def __init__(self, timeout=60):
        self.folder = tempfile.mkdtemp(prefix="deepinfer-ui-")
        self.process = subprocess.Popen(
            [find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
             "--remote-debugging-port=0", "--user-data-dir=" + self.folder, "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.timeout = timeout
        self.tabs = []
        port_file = os.path.join(self.folder, "DevToolsActivePort")
        end = time.monotonic() + timeout
        self.port = 0
        while self.port == 0:
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise RuntimeError("the browser does not start")
            try:
                self.port = int(open(port_file, encoding="ascii").readline())
            except (OSError, ValueError):
                time.sleep(0.05)

    def page(self):
        """A fresh tab."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            tab = json.load(answer)
        self.tabs.append(tab["id"])
        return Page(tab["webSocketDebuggerUrl"], self.timeout)

    def close_tabs(self):
        for tab in self.tabs:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/json/close/{tab}", timeout=self.timeout).close()
        self.tabs = []

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def picture(png):
    """Width, height and rows of pixels (bytes, 3 or 4 each) of an 8-bit PNG."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, packed = 8, b""
    while at < len(png):
        size, kind = struct.unpack("!I4s", png[at:at + 8])
        data = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack("!IIBB", data[:10])
            assert depth == 8 and colour in (2, 6) and data[12] == 0, "an unknown kind of PNG"
        elif kind == b"IDAT":
            packed += data
        at += 12 + size
    pixel = 3 if colour == 2 else 4
    raw, stride = zlib.decompress(packed), width * pixel
    rows, before = [], bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        rule, line = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for x in range(stride):
            left = line[x - pixel] if x >= pixel else 0
            up = before[x]
            if rule == 1:
                line[x] = (line[x] + left) & 255
            elif rule == 2:
                line[x] = (line[x] + up) & 255
            elif rule == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif rule == 4:
                corner = before[x - pixel] if x >= pixel else 0
                guess = left + up - corner
                a, b, c = abs(guess - left), abs(guess - up), abs(guess - corner)
                line[x] = (line[x] + (left if a <= b and a <= c else up if b <= c else corner)) & 255
        rows.append(bytes(line))
        before = line
    return width, height, pixel, rows
