"""A signal while numba loads machine code: the interruption comes through, and nothing crashes."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

LOOP = """
from latte.engine.cache import kernel

@kernel
def total(values):
    result = 0.0
    for value in values:
        result += value
    return result
"""

# LLVM asks for cached code through a callback from C; the signal comes exactly there, at the WHICH-th time
USE = """
import signal, sys
import numpy as np
from numba.core import codegen

asked, ask = 0, codegen.CPUCodeLibrary._object_getbuffer_hook.__func__

def hook(cls, module):
    global asked
    asked += 1
    if asked == int(sys.argv[1]):
        signal.raise_signal(signal.SIGINT)
    return ask(cls, module)

codegen.CPUCodeLibrary._object_getbuffer_hook = classmethod(hook)
import loop
try:
    loop.total(np.ones(3))
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(loop.total(np.ones(3)), asked)
"""


def use(folder, which):
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '.')\n{USE}", str(which)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_ctrl_c_while_cached_code_is_loaded_does_not_crash(tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    assert use(tmp_path, 0).stdout.split()[0] == "3.0"  # fills the cache
    value, asked = use(tmp_path, 0).stdout.split()
    assert value == "3.0" and int(asked) >= 1
    for which in range(1, int(asked) + 1):
        answer = use(tmp_path, which)
        assert answer.returncode == 0 and not answer.stderr, answer
        assert answer.stdout.splitlines()[0] == "interrupted", "the signal was lost"
        assert answer.stdout.split()[1] == "3.0"
