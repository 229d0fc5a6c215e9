"""A torchvision that was built for CUDA beside a CPU torch: its import ends where it describes two missing operators.

Declared before, they are not missed: nothing of open_clip detects objects. `.ci/run` lets every Python of its
environment import this module first, through a file torchvision_operators.pth.
"""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any

KEPT: list[Any] = []  # a library that is let go takes its operators with it


class DeclareFirst(importlib.abc.MetaPathFinder):
    """Declares the operators when torchvision is about to be imported, and finds nothing itself."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch

            KEPT.append(torch.library.Library("torchvision", "DEF"))
            for name in ("nms", "qnms"):
                KEPT[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, DeclareFirst())
