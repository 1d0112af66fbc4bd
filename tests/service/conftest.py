"""Fixtures: servers, started once per set of flags, and looked at behind every test."""

import pytest

from cluster import Cluster
from script import shared_script
from service import BINARY, Server


def pytest_configure(config):
    if not BINARY.exists():
        pytest.exit(f"SKIPPED: {BINARY} has not been built", returncode=77)


class Servers:
    """Those of a session, by their flags."""

    def __init__(self):
        self.running = {}
        self.used = []

    def __call__(self, *flags, script=..., key=None, env=None):
        """A server that other tests use as well: leave it as it was."""
        script = shared_script() if script is ... else script
        name = (flags, repr(script), key, repr(env))
        server = self.running.get(name)
        if server is None or not server.is_alive():
            server = self.running[name] = Server(*flags, script=script, key=key, env=env)
        self.used.append(server)
        return server


@pytest.fixture(scope="session")
def all_servers():
    servers = Servers()
    yield servers
    for server in servers.running.values():
        server.stop()


@pytest.fixture
def serve(all_servers):
    """serve(flags...): a server. Behind the test it must be at rest."""
    all_servers.used.clear()
    yield all_servers
    for server in dict.fromkeys(all_servers.used):
        server.check_rest()


@pytest.fixture
def server(serve):
    """The scripted model with default flags."""
    return serve()


@pytest.fixture
def tiny(serve):
    """The embedded model: real sampling."""
    return serve("--max-num-seqs", "32", "--num-threads", "1", script=None)


@pytest.fixture
def own(request):
    """own(flags...): a server of this test alone, which may end it."""
    started = []

    def start(*flags, script=..., **options):
        script = shared_script() if script is ... else script
        started.append(Server(*flags, script=script, **options))
        return started[-1]

    yield start
    for it in started:
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
