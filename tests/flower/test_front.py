"""The proxy in front of a SuperLink: a node joins through it, and nobody reaches the control API."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

from waiting import ROOT, running, wait_until

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")

pytestmark = pytest.mark.slow
for tool in ("nginx", "openssl", "ssh-keygen"):
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}", allow_module_level=True)


@pytest.fixture
def deployment(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "flower_app"))
    from loopback import Loopback

    made = Loopback(tmp_path, free_port())
    made.prepare()
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def status(address: str, path: str, authority) -> int:
    request = urllib.request.Request(f"https://{address}{path}", data=b"", method="POST")
    try:
        return urllib.request.urlopen(request, context=ssl.create_default_context(cafile=authority)).status
    except urllib.error.HTTPError as error:
        return error.code


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop(process) -> None:
    """End a process in good order, with the processes that it started."""
    process.process.terminate()
    wait_until(lambda: not process.alive(), "the end of a process of Flower")


def test_a_node_joins_through_the_front_and_nobody_starts_a_run(deployment, tmp_path):
    front = free_port()
    text = (ROOT / "examples" / "flower_app" / "front.conf").read_text()
    text = text.replace("127.0.0.1:9443", f"127.0.0.1:{front}").replace("127.0.0.1:18443", deployment.address)
    text = re.sub(r"\b(server\.pem|server\.key|ca\.crt)\b", lambda match: str(tmp_path / match[1]), text)
    user = "user root;\n" if os.geteuid() == 0 else ""
    (tmp_path / "front.conf").write_text(user + text)
    environment = deployment.environment()
    proxy = ("nginx", "-p", tmp_path, "-c", "front.conf", "-g", "daemon off; master_process off;")
    with running(*deployment.superlink(), **environment) as superlink, running(*proxy, **environment) as nginx:
        wait_until(lambda: listens(deployment.port), "the SuperLink", superlink)
        wait_until(lambda: listens(front), "the proxy", nginx)
        for path in ("/v1/control/start-run", "/v1/runtime/pull-task-input", "/", "/v1/fleet/../control/start-run"):
            assert status(f"127.0.0.1:{front}", path, deployment.authority) == 403, path
        assert status(deployment.address, "/v1/control/start-run", deployment.authority) != 403

        subprocess.run(deployment.register(0), env=environment, check=True, capture_output=True)
        deployment.address = f"127.0.0.1:{front}"
        with running(*deployment.supernode(0, free_port()), **environment) as node:
            wait_until(lambda: "SuperNode ID: " in str(node.so_far()), "a node that joins through the front", node)
            stop(node)
        stop(superlink)
