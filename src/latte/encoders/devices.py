"""Devices and precisions: where an encoder runs and in which numbers, for torch and for ONNX Runtime.

Both have names of their own: torch's devices ("cuda", "cuda:1", "mps", "cpu"), and ONNX Runtime's execution providers,
with or without their ending ("cuda" is CUDAExecutionProvider), also of a second card ("cuda:1"). "auto" takes the first
of an order that works here, and the :class:`Placement` of an encoder says which it was.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from ..core.validate import choice
from ..errors import refuse
from ..files.documents import shorten

AUTO = "auto"
PRECISIONS = ("fp32", "bf16", "fp16")
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
TORCH_ORDER = ("cuda", "mps", "cpu")
PROVIDER = "ExecutionProvider"  # the ending of every name of ONNX Runtime
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_AZURE = "AzureExecutionProvider"  # a service elsewhere
# the packages that bring a provider, each in place of onnxruntime
ONNXRUNTIMES = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "openvino": "onnxruntime-openvino",
    "dml": "onnxruntime-directml",
}
# TensorRT (minutes of compiling), CoreML and OpenVINO (which may round more) are taken when they are asked for.
PROVIDER_ORDER = (CUDA, "MIGraphXExecutionProvider", "DmlExecutionProvider", CPU)
# fp32 is to mean 24 bits of mantissa: by default CUDA rounds to TF32, OpenVINO to bf16 where the processor has it.
# "EXHAUSTIVE", the default, would search again for every batch size: also for the last batch.
_PROVIDER_OPTIONS = {
    CUDA: {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"},
    "OpenVINOExecutionProvider": {"device_type": "CPU", "precision": "FP32"},
}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an encoder runs (``device``, as its library calls it), on what ``hardware`` if known, how it computes.

    >>> print(Placement("cuda:0", "fp16", "NVIDIA A100"))
    cuda:0 (NVIDIA A100), fp16
    """

    device: str
    precision: str = "fp32"
    hardware: str = ""

    def __str__(self) -> str:
        return f"{self.device}{f' ({self.hardware})' if self.hardware else ''}, {self.precision}"


def place_torch(torch: Any, device: str, precision: str) -> tuple[Any, Any, Placement]:
    """Return torch's device and dtype for the names of a user; what the device does not have is refused."""
    choice("precision", precision, PRECISIONS)
    here = torch_devices(torch)
    name = here[0] if device == AUTO else device
    try:
        place = torch.device(name.lower())
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError, ImportError) as error:  # ImportError: of a device in a package of its own
        reason = shorten(str(error).partition("\n")[0], 120)
        raise refuse("device", f"{device!r} ({reason})", f"a device of torch here: {', '.join(here)}") from None
    half = {"cpu": ("bf16",), "mps": ("fp16",)}.get(place.type, ("bf16", "fp16"))
    if place.type == "cuda":
        with torch.cuda.device(place):  # what is asked is asked of the current card
            half = half if torch.cuda.is_bf16_supported(including_emulation=False) else ("fp16",)
    if precision not in ("fp32", *half):
        raise refuse("precision (--compute)", f"{precision!r} on {place}", " or ".join(("fp32", *half)))
    if place.type == "cuda" and precision == "fp32":
        torch.backends.cudnn.allow_tf32 = False  # of convolutions; for matrix products it is off by default
    hardware = torch.cuda.get_device_name(place) if place.type == "cuda" else ""
    return place, getattr(torch, _DTYPES[precision]), Placement(str(place), precision, hardware)


def torch_devices(torch: Any) -> list[str]:
    """Return the kinds of device that torch finds here, the one that "auto" takes first."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [name for name in TORCH_ORDER if there[name]]


def open_session(runtime: Any, path: str, device: str, threads: int) -> Any:
    """Return an ONNX session on the provider ``device``; an error of the runtime about the model itself passes through.

    ONNX Runtime goes on with the processor where a provider cannot start. Asked for by name, that is refused here.
    """
    kind, _, card = device.partition(":")
    available = runtime.get_available_providers()
    for name in find_providers(available, kind):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        names = [name] if name == CPU else [name, CPU]  # for the operators that another provider does not have
        if name == "TensorrtExecutionProvider" and CUDA in available:
            names.insert(1, CUDA)  # or they would run on the processor
        with redirect_stdout(sys.stderr):  # what cannot start is printed
            if CUDA in names and hasattr(runtime, "preload_dlls"):
                runtime.preload_dlls()  # the libraries of CUDA that pip installed, which are on no path of the system
            providers = [(each, _provider_settings(each, card, threads)) for each in names]
            session = runtime.InferenceSession(path, options, providers=providers)
        if session.get_providers()[0] == name:
            session.disable_fallback()  # or an error in the middle would move it to the processor
            return session
    want = "its driver and libraries, or --device cpu: onnxruntime has it but cannot start it"
    raise refuse("device", repr(device), want)


def _provider_settings(name: str, card: str, threads: int) -> dict[str, str]:
    settings = dict(_PROVIDER_OPTIONS.get(name, {}))
    if name == "OpenVINOExecutionProvider" and threads:
        settings["num_of_threads"] = str(threads)
    if card and name != CPU:
        settings["device_type" if name == "OpenVINOExecutionProvider" else "device_id"] = card
    return settings


def find_providers(available: list[str], device: str) -> list[str]:
    """Return the providers to try for ``device``, in order.

    >>> find_providers(["OpenVINOExecutionProvider", "CPUExecutionProvider"], "openvino")
    ['OpenVINOExecutionProvider']
    >>> find_providers(["OpenVINOExecutionProvider", "CPUExecutionProvider"], "auto")
    ['CPUExecutionProvider']
    """
    if device == AUTO:
        return [name for name in PROVIDER_ORDER if name in available]
    known = {name.removesuffix(PROVIDER).casefold(): name for name in available if name != _AZURE}
    found = known.get(device.removesuffix(PROVIDER).casefold())
    if found is None:
        package = ONNXRUNTIMES.get(device.casefold())
        hint = f"; {device} needs the package {package} in place of onnxruntime" if package else ""
        raise refuse("device", repr(device), f"auto, or a provider of this onnxruntime: {', '.join(known)}{hint}")
    return [found]


def list_devices() -> dict[str, tuple[str, ...]]:
    """Return what ``--device`` may name here, for each library that is installed; the first is what "auto" takes."""
    found: dict[str, tuple[str, ...]] = {}
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        found["torch"] = tuple(torch_devices(torch))
    if importlib.util.find_spec("onnxruntime"):
        names = importlib.import_module("onnxruntime").get_available_providers()
        names = [name for name in names if name != _AZURE]
        first = find_providers(names, AUTO)[:1]
        found["onnx"] = (*first, *(name for name in names if name not in first))
    return found
