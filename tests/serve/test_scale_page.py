"""The machines in docs/scale.md are those that the costs give."""

import subprocess
import sys

import pytest

from waiting import ROOT

PROGRAM = ROOT / "benchmarks" / "cells.py"


@pytest.mark.skipif(not PROGRAM.is_file(), reason="benchmarks are not part of this distribution")
def test_the_machines_are_those_of_the_costs():
    answer = subprocess.run([sys.executable, PROGRAM, "machines"], capture_output=True, text=True, check=True)
    page = " ".join((ROOT / "docs" / "scale.md").read_text(encoding="utf-8").split())
    lines = [" ".join(line.split()) for line in answer.stdout.splitlines() if line]
    assert len(lines) > 5
    assert [line for line in lines if line not in page] == [], "docs/scale.md: put in what cells.py machines prints"
