"""The programs in benchmarks/ that the figures of the service come from still run: each in its shortest form."""

import importlib.util
import json
import sys

import pytest

from latte.data.catalogue import find_benchmark
from waiting import ROOT, SUPPORT, run

pytestmark = pytest.mark.slow


def benchmark(program, *options):
    """Return what a program of benchmarks/ prints."""
    done = run(
        sys.executable,
        ROOT / "benchmarks" / program,
        *options,
        PYTHONPATH=f"{ROOT / 'src'}:{SUPPORT}",
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_bytes_of_a_sync():
    file = find_benchmark("cifar10c-mini").path
    printed = benchmark("wire/wire_bytes.py", file, "--clients-per-domain", 1, "--precisions", "fp16,int8")
    rows = [line.split("|") for line in printed.splitlines() if "| both |" in line]
    assert [(row[1].strip(), row[2].strip()) for row in rows] == [
        (method, precision) for method in ("latte+k_e=5", "ristretto") for precision in ("fp16", "int8")
    ]


def test_accuracy_by_precision():
    file = find_benchmark("cifar10c-mini").path
    printed = benchmark(
        "wire/wire_accuracy.py", file, "--seeds", "0-0", "--methods", "latte+k_e=5", "--precisions", "fp32,int4"
    )
    assert [json.loads(line)["precision"] for line in printed.splitlines() if line.startswith("{")] == ["fp32", "int4"]


def test_load():
    row = json.loads(
        benchmark("server/serve_load.py", "--clients", 20, "--concurrent", 4, "--seconds", 0.5, "--uploads", 64)
    )
    assert row["clients"] == 20
    assert row["processor ms"] > 0


def test_kills():
    assert "none lost" in benchmark("server/server_kills.py", "--kills", 1, "--clients", 3, "--longest", 0.2)


def test_fuzzing():
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("needs atheris")
    assert "no failure" in benchmark("wire/fuzz_decoder.py", "--inputs", 500)
