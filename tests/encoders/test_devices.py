"""Where an encoder runs: on the processor for real, elsewhere by what is asked of torch and ONNX Runtime."""

import contextlib
import sys
import types

import numpy as np
import pytest

import tiny_onnx
import tiny_open_clip
from latte.cli.edge import edge
from latte.encoders import load_encoder
from latte.encoders.base import BATCH
from latte.encoders.devices import find_providers, list_devices
from latte.encoders.onnx import OnnxEncoder
from latte.errors import InputError
from tiny_models import make_photo, save_clip
from waiting import latte

PICTURES = [make_photo(40 + 9 * number, 60) for number in range(6)]
TEXTS = ["a photo of a dog.", "a polar bear"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    pytest.importorskip("transformers")
    return f"hf:{save_clip(tmp_path_factory.mktemp('clip'))}"


# --- torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_auto_is_the_processor_where_there_is_nothing_else(torch, clip):
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has another device")
    encoder = load_encoder(clip, device="auto")
    assert str(encoder.placement) == "cpu, fp32" and list_devices()["torch"] == ("cpu",)
    for device in ("cuda", "mps", "cuda:7", "gpu", "hpu"):  # hpu: torch's error is that of an import
        with pytest.raises(ValueError, match=f"device: got '{device}'.*want a device of torch here: cpu"):
            load_encoder(clip, device=device)


def test_half_precision_on_the_processor(torch, clip):
    """The model computes in it, the rows are float32 and near the others, and the fingerprint tells them apart."""
    whole, half = load_encoder(clip), load_encoder(clip, precision="bf16")
    assert {p.dtype for p in half.model.parameters()} == {torch.bfloat16} and str(half.placement) == "cpu, bf16"
    for a, b in ((whole.images(PICTURES), half.images(PICTURES)), (whole.texts(TEXTS), half.texts(TEXTS))):
        assert b.dtype == np.float32 and np.allclose(np.linalg.norm(b, axis=1), 1, atol=1e-6)
        assert 1e-6 < np.abs(a - b).max() < 0.03
    assert half.scale == whole.scale and half.fingerprint != whole.fingerprint
    assert half.fingerprint == load_encoder(clip, precision="bf16").fingerprint
    with pytest.raises(ValueError, match=r"precision \(--compute\): got \'fp16\' on cpu, want fp32 or bf16"):
        load_encoder(clip, precision="fp16")


@pytest.mark.parametrize(
    ("model", "precision"),
    [("hf", "fp32"), ("hf", "bf16"), ("hf", "fp16"), ("clip", "fp16"), ("tower", "bf16"), ("siglip", "fp16")],
)
def test_on_another_device_everything_is_there_before_it_is_used(torch, clip, tmp_path, monkeypatch, model, precision):
    """On "meta", a device of tensors without values: a product with a tensor that stayed behind is torch's error."""
    from latte.encoders.hf import TorchEncoder

    if model != "hf":
        pytest.importorskip("open_clip")
        clip = f"local:{tiny_open_clip.save(tmp_path / model, model)}"
    encoder = load_encoder(clip, device="meta", precision=precision)
    meta = torch.device("meta")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert {(p.device, p.dtype) for p in encoder.model.parameters()} == {(meta, dtype)}
    assert all(buffer.device == meta for buffer in encoder.model.buffers())
    assert str(encoder.placement) == f"meta, {precision}" and encoder.scale == load_encoder(clip).scale
    moved, came_back, to = [], [], torch.Tensor.to

    def note(tensor, *where, **options):
        moved.append((tuple(tensor.shape), tensor.dtype, where))
        return to(tensor, *where, **options)

    def bring_back(self, tensor):
        came_back.append((tuple(tensor.shape), tensor.device))
        return np.ones(tuple(tensor.shape), np.float32)

    monkeypatch.setattr(torch.Tensor, "to", note)
    monkeypatch.setattr(TorchEncoder, "_numpy", bring_back)
    assert encoder.images(PICTURES, batch_size=4).shape == (6, encoder.dim)
    assert encoder.texts(TEXTS).shape == (2, encoder.dim)
    assert came_back == [((n, encoder.dim), meta) for n in (4, 2, 2)]
    sent = [(shape, kind, where) for shape, kind, where in moved if len(shape) == 4 and kind == torch.float32]
    assert sent[0] == ((4, 3, 32, 32), torch.float32, (meta, dtype))  # as float32, and rounded there


def test_tf32_is_not_fp32(torch, monkeypatch):
    """What is asked of a real "cuda": which halves it has, its name, and no rounding to TF32."""
    from latte.encoders.devices import place_torch

    real, settings, current = torch.device, types.SimpleNamespace(allow_tf32=True), [torch.device("cuda:1")]

    @contextlib.contextmanager
    def use(place):
        before, current[0] = current[0], place
        yield
        current[0] = before

    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: current[0].index == 2)
    monkeypatch.setattr(torch.cuda, "device", use)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GTX 1080")
    monkeypatch.setattr(torch.backends, "cudnn", settings)
    device, dtype, placement = place_torch(torch, "auto", "fp16")
    assert (device, dtype, str(placement)) == (real("cuda"), torch.float16, "cuda (GTX 1080), fp16")
    assert settings.allow_tf32
    with pytest.raises(ValueError, match="want fp32 or fp16"):
        place_torch(torch, "cuda:1", "bf16")
    assert place_torch(torch, "cuda:2", "bf16")[1] == torch.bfloat16, "that card has it, whatever the current one has"
    assert place_torch(torch, "cuda:1", "fp32")[0] == real("cuda:1") and not settings.allow_tf32


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_too_large_a_batch_is_said_to_be_one(torch, clip, monkeypatch, kind):
    encoder = load_encoder(clip if kind == "torch" else f"onnx:{tiny_onnx.FOLDER}")

    def fail(*_):
        raise (
            torch.OutOfMemoryError("CUDA out of memory.")
            if kind == "torch"
            else RuntimeError("Non-zero status code: BFCArena: Failed to allocate memory for requested buffer")
        )

    if kind == "torch":
        monkeypatch.setattr(encoder, "image_features", fail)
    else:
        monkeypatch.setattr(encoder, "_image", types.SimpleNamespace(run=fail))
    with pytest.raises(InputError, match=r"batch: got 4 at once, for which there is no memory, want fewer.*--batch"):
        encoder.images(PICTURES, batch_size=4)


def test_every_command_hands_on_where_and_how(tmp_path, monkeypatch):
    """--device, --compute and --batch of embed, classify and task, and of edge, which takes pictures one by one."""
    asked, batches = [], []

    class Noting(OnnxEncoder):
        def texts(self, texts, batch_size=BATCH, progress=None):
            batches.append(batch_size)
            return super().texts(texts, batch_size, progress)

    def load(spec, threads, device, precision):
        asked.append((threads, device, precision))
        return Noting(tiny_onnx.FOLDER)

    for name in ("cat", "dog"):
        (tmp_path / "p" / name).mkdir(parents=True)
        make_photo(40, 40).save(tmp_path / "p" / name / "1.png")
    monkeypatch.setattr("latte.encoders.load_encoder", load)
    given = ("--encoder", f"onnx:{tiny_onnx.FOLDER}", "--device", "cuda:1", "--compute", "fp16")
    latte("embed", f"classes:{tmp_path / 'p'}", "--out", tmp_path / "a.safetensors", *given, "--batch", 5, check=True)
    latte("classify", tmp_path / "p", "--classes", "cat,dog", *given, "--batch", 6, check=True)
    latte("task", "create", tmp_path / "a.task", "--classes", "cat,dog", *given, "--batch", 7, check=True)
    add = ("task", "add-class", tmp_path / "a.task", tmp_path / "b.task", "fox")
    latte(*add, *given, "--batch", 8, check=True)  # in other numbers, an encoder is another one
    assert asked == [(0, "cuda:1", "fp16")] * 4 and batches == [5, 6, 7, 8]
    monkeypatch.setattr(
        "latte.edge.device.program.open_loop", lambda membership, folder, load, **_: load(None) and 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        edge.main(
            [str(tmp_path / "p"), "--server", "http://127.0.0.1:9", "--state", str(tmp_path), *given, "--threads", "3"],
            standalone_mode=False,
        )
    assert asked[4:] == [(3, "cuda:1", "fp16")]


# --- ONNX Runtime

ALL = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider", "CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ("auto", ["CUDAExecutionProvider", "CPUExecutionProvider"]), ("cuda", ["CUDAExecutionProvider"]),
        ("CUDAExecutionProvider", ["CUDAExecutionProvider"]), ("openvino", ["OpenVINOExecutionProvider"]),
        ("TensorRT", ["TensorrtExecutionProvider"]), ("CPU", ["CPUExecutionProvider"]),
    ],
)  # fmt: skip
def test_providers_by_name(device, found):
    assert find_providers(ALL, device) == found


def test_a_provider_that_is_not_there_is_refused():
    pytest.importorskip("onnxruntime")
    for device in ("cuda", "CUDA", "cuda:1"):
        with pytest.raises(ValueError, match=r"want auto, or a provider of this onnxruntime: .*cpu.*onnxruntime-gpu"):
            load_encoder(f"onnx:{tiny_onnx.FOLDER}", device=device)
    with pytest.raises(ValueError, match="device: got 'azure'"):  # a service elsewhere is no device
        find_providers(["AzureExecutionProvider", "CPUExecutionProvider"], "azure")
    with pytest.raises(ValueError, match=r"precision \(--compute\): got \'fp16\', want fp32: an ONNX folder"):
        load_encoder(f"onnx:{tiny_onnx.FOLDER}", precision="fp16")


@pytest.mark.parametrize("starts", [True, False])
def test_a_provider_that_cannot_start(monkeypatch, capsys, starts):
    """ONNX Runtime would go on with the processor: "auto" does so and says it, a name is refused."""
    runtime = pytest.importorskip("onnxruntime")
    asked, settings, real = [], [], runtime.InferenceSession

    def session(path, options, providers):
        asked.append([name for name, _ in providers])
        settings.append(dict(providers))
        print("EP Error")  # as ONNX Runtime does
        made = real(path, options, providers=["CPUExecutionProvider"])
        if starts and providers[0][0] != "CPUExecutionProvider":
            monkeypatch.setattr(made, "get_providers", lambda: asked[-1])
        return made

    monkeypatch.setattr(runtime, "get_available_providers", lambda: ALL)
    monkeypatch.setattr(runtime, "preload_dlls", lambda: asked.append("libraries"), raising=False)
    monkeypatch.setattr(runtime, "InferenceSession", session)
    encoder = load_encoder(f"onnx:{tiny_onnx.FOLDER}", device="auto")
    cuda, cpu = ["CUDAExecutionProvider", "CPUExecutionProvider"], ["CPUExecutionProvider"]
    assert asked == (["libraries", cuda] if starts else ["libraries", cuda, cpu])
    assert str(encoder.placement) == f"{'CUDA' if starts else 'CPU'}ExecutionProvider, fp32"
    assert not encoder._image._enable_fallback and "device_id" not in settings[0][cuda[0]], "an error must not move it"
    if starts:
        second = load_encoder(f"onnx:{tiny_onnx.FOLDER}", device="cuda:1")
        assert settings[-1][cuda[0]]["device_id"] == "1" and second.placement.device == "CUDAExecutionProvider:1"
        load_encoder(f"onnx:{tiny_onnx.FOLDER}", device="openvino:GPU")
        assert settings[-1]["OpenVINOExecutionProvider"]["device_type"] == "GPU"
        load_encoder(f"onnx:{tiny_onnx.FOLDER}", device="tensorrt:1")
        assert asked[-2:] == ["libraries", ["TensorrtExecutionProvider", *cuda]], "what it cannot do stays on the card"
        assert settings[-1][cuda[0]] == {**settings[0][cuda[0]], "device_id": "1"}
    assert not capsys.readouterr().out, "where answers are printed"
    if not starts:
        with pytest.raises(ValueError, match="device: got 'openvino', want its driver and libraries"):
            load_encoder(f"onnx:{tiny_onnx.FOLDER}", device="openvino")


@pytest.mark.skipif("onnxruntime" not in sys.modules and not list_devices().get("onnx"), reason="needs onnxruntime")
def test_another_provider_of_this_machine_gives_the_same_rows(tiny):
    """With the package onnxruntime-openvino, for example."""
    others = [name for name in list_devices()["onnx"] if name != "CPUExecutionProvider"]
    if not others:
        pytest.skip("only the processor's provider is installed")
    for name in others:
        encoder = load_encoder(f"onnx:{tiny_onnx.FOLDER}", device=name)
        assert encoder.placement.device == name
        assert np.allclose(encoder.images(PICTURES), tiny.images(PICTURES), atol=1e-4)
        assert np.allclose(encoder.texts(TEXTS), tiny.texts(TEXTS), atol=1e-4)
