"""A device and its server over TLS: an authority of one's own, and a certificate that the server asks for."""

import shutil

import pytest

import devices
from devices import edge_command, run_device, status, write_pictures
from serving import server_process
from waiting import run

pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl"),
]


def openssl(folder, *words):
    run("openssl", *words, cwd=folder, check=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with the certificate of an authority, and one that it signed, with its key."""
    folder = tmp_path_factory.mktemp("certificates")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, *new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(folder, *new, "-subj", "/CN=localhost", "-keyout", "own.key", "-out", "own.csr")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl(folder, "x509", "-req", "-in", "own.csr", *signing, "-out", "own.pem")
    return folder


def test_only_who_has_a_certificate_syncs_and_only_with_a_server_that_has_one(certificates, tmp_path):
    ca, own, key = (certificates / name for name in ("ca.pem", "own.pem", "own.key"))
    pictures, task = write_pictures(tmp_path / "in", 5), devices.make_task_file(tmp_path)
    tls = ("--cert", own, "--key", key, "--client-ca", ca)
    with server_process(task, tmp_path / "data", *tls) as (server, _):
        assert server.startswith("https://")
        trusted, known = ("--server-ca", ca), ("--cert", own, "--key", key)
        run_device(server, tmp_path / "a", "a", *trusted, *known, *pictures)
        assert status(tmp_path / "a")["sync_images"] == 5
        for name, options, words in (
            ("b", known, "--server-ca with the authority"),
            ("c", trusted, "--cert and --key"),
        ):
            done = run(*edge_command(server, tmp_path / name, name, *options, *pictures))
            assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr
            assert "the first start of a device needs its server" in done.stderr
