"""The closed forms against counting: slow transcriptions count what they multiply, and must give the real answers."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Clip, Prediction, ZeroShot, create, create_exchange, sync
from latte.cli import cli
from latte.core.maths import normalised
from latte.methods import resolve
from latte.methods.dmn import DmnParams
from latte.methods.latte.client import PRESETS, LatteParams
from latte.methods.latte.readout import MergedMemory
from latte.methods.registry import METHODS, Registration
from latte.methods.tda import TdaParams
from latte.methods.traffic import Content
from latte.paper.cost import (
    CLIP_TEXT,
    PARAMETERS,
    VIT_B_16,
    CostShape,
    Tower,
    counted_macs,
    direct_macs,
    encoder_bytes,
    matmul_reference,
    measure_method,
    own_macs,
    paper_costs,
    passes_macs,
    server_macs,
    traffic,
    vit,
)
from latte.text import short_count

SIZES = st.tuples(st.integers(2, 4), st.integers(1, 3), st.integers(2, 6), st.integers(0, 2**32 - 1))


class Counter:
    """Multiplies and counts."""

    def __init__(self):
        self.count = 0

    def times(self, a, b):
        self.count += 1
        return float(a) * float(b)

    def dot(self, a, b):
        return sum(self.times(x, y) for x, y in zip(a, b, strict=True))


def unit(rng, *shape):
    return normalised(rng.standard_normal(shape).astype(np.float32))


# --- the transcriptions --------------------------------------------------------------------------------------


def slow_readout(count, memory, entropy, f, beta, gamma):
    """Equations 4 to 6 as they are printed; gamma · h is known when the item is stored, and the norm is not counted."""
    fixed = -gamma * entropy
    answers = []
    for items, known in zip(memory, fixed, strict=True):
        exponents = [count.times(beta, count.dot(f, item)) + h for item, h in zip(items, known, strict=True)]
        weights = [math.exp(e - max(exponents)) for e in exponents]
        sums = [0.0] * len(f)
        for weight, item in zip(weights, items, strict=True):
            sums = [total + count.times(weight, x) for total, x in zip(sums, item, strict=True)]
        length = math.sqrt(sum(x * x for x in sums))
        answers.append(count.dot(f, [x / length for x in sums]))
    return answers


def slow_gram_readout(count, memory, offset, gram, f, beta):
    """What the package computes: no weighted sum, its product and norm come from similarities and the Gram matrix."""
    answers = []
    for items, known, g in zip(memory, offset, gram, strict=True):
        s = [count.dot(f, item) for item in items]
        exponents = [count.times(beta, x) + h for x, h in zip(s, known, strict=True)]
        weights = [math.exp(e - max(exponents)) for e in exponents]
        product = count.dot(weights, s)
        square = count.dot(weights, [count.dot(row, weights) for row in g])
        answers.append(product / math.sqrt(square))
    return answers


@given(SIZES)
@settings(max_examples=25)
def test_latte_as_printed(sizes):
    c, k, d, seed = sizes
    rng = np.random.default_rng(seed)
    memory, entropy, f = unit(rng, c, k, d), rng.uniform(0, 1, (c, k)), unit(rng, d)
    count = Counter()
    slow = slow_readout(count, memory, entropy, f, 5.0, 1.5)
    assert count.count == sum(direct_macs("latte", LatteParams(k_l=k), CostShape(c, d)).values())
    real = MergedMemory(c, k, d, gamma=1.5)
    real.replace(memory, entropy, np.ones((c, k), bool))
    np.testing.assert_allclose(real.cosines(f, 5.0), slow, atol=1e-5)


@given(SIZES)
@settings(max_examples=25)
def test_latte_as_computed_here(sizes):
    c, k, d, seed = sizes
    rng = np.random.default_rng(seed)
    memory, entropy, f = unit(rng, c, k, d), rng.uniform(0, 1, (c, k)), unit(rng, d)
    count = Counter()
    grams = [[[float(a @ b) for b in items] for a in items] for items in memory.astype(float)]
    [[count.dot(a, b) for b in memory[0]] for a in memory[0]]  # one class changed
    [count.times(-1.5, h) for h in entropy[0]]
    slow = slow_gram_readout(count, memory, -1.5 * entropy, grams, f, 5.0)
    mixed = [count.times(100.0, value) for value in slow]
    assert count.count == sum(own_macs("latte", LatteParams(k_l=k), CostShape(c, d)).values())
    real = MergedMemory(c, k, d, gamma=1.5)
    real.replace(memory, entropy, np.ones((c, k), bool))
    np.testing.assert_allclose(100 * real.cosines(f, 5.0), mixed, atol=1e-3)


@given(SIZES)
@settings(max_examples=20)
def test_dmn(sizes):
    c, k, d, seed = sizes
    rng = np.random.default_rng(seed)
    text, memory, f = unit(rng, c, d), unit(rng, c, k, d), unit(rng, d)
    method = create("dmn", ZeroShot(text, tuple(map(str, range(c)))), DmnParams(k=k))
    entropy = rng.uniform(0, 1, (c, k))
    method.load({"vectors": memory, "entropy": entropy, "valid": np.ones((c, k), bool)})
    known = [float(t @ f) for t in text]  # the head has computed these
    count, slow = Counter(), []
    for y in range(c):
        s = [count.dot(f, item) for item in memory[y]] + [known[y]]
        weights = [math.exp(count.times(5.5, x) - 5.5) for x in s]
        sums = [0.0] * d
        for weight, item in zip(weights, [*memory[y], text[y]], strict=True):
            sums = [total + count.times(weight, x) for total, x in zip(sums, item, strict=True)]
        length = math.sqrt(sum(x * x for x in sums))
        slow.append(count.dot(f, [x / length for x in sums]))
    [count.times(1.0, value) for value in slow]  # the weight of the memory
    assert count.count == sum(direct_macs("dmn", DmnParams(k=k), CostShape(c, d)).values())
    np.testing.assert_allclose(method._cosines(f, np.array(known)), slow, atol=1e-5)


@given(SIZES)
@settings(max_examples=20)
def test_tda(sizes):
    c, k, d, seed = sizes
    rng = np.random.default_rng(seed)
    params = TdaParams(k=k, k_negative=2)
    method = create("tda", ZeroShot(unit(rng, c, d), tuple(map(str, range(c)))), params)
    state = method.state()
    for name, size in (("positive", k), ("negative", 2)):
        state[f"{name}.vectors"] = unit(rng, c, size, d)
        state[f"{name}.entropy"] = np.sort(rng.uniform(0, 1, (c, size)), axis=1)
        state[f"{name}.valid"] = np.ones((c, size), bool)
    state["negative.probabilities"] = rng.dirichlet(np.ones(c), (c, 2))
    method.load(state)
    f = unit(rng, d)
    count = Counter()
    pull, push = slow_tda(count, state, params, f)
    assert count.count == sum(direct_macs("tda", params, CostShape(c, d)).values())
    np.testing.assert_allclose(method._attraction(f), pull, atol=1e-4)
    np.testing.assert_allclose(method._repulsion(f), push, atol=1e-4)


def slow_tda(count, state, p, f):
    c = len(state["positive.valid"])
    pull, push = [], [0.0] * c
    for items in state["positive.vectors"]:
        weights = [math.exp(count.times(p.beta, count.dot(f, item) - 1)) for item in items]
        pull.append(count.times(p.alpha, sum(weights)))
    for items, probabilities in zip(state["negative.vectors"], state["negative.probabilities"], strict=True):
        for item, row in zip(items, probabilities, strict=True):
            weight = math.exp(count.times(p.beta_negative, count.dot(f, item) - 1))
            for y in range(c):
                push[y] += count.times(weight, p.probability_above < row[y] < p.probability_below)
    return pull, [count.times(p.alpha_negative, value) for value in push]


@given(SIZES)
@settings(max_examples=10)
def test_dmn_as_computed_here(sizes):
    c, k, d, seed = sizes
    rng = np.random.default_rng(seed)
    items = unit(rng, c, k + 1, d)  # the text last
    f, count = unit(rng, d), Counter()
    grams = np.einsum("cid,cjd->cij", items.astype(float), items.astype(float))
    for y in range(c):
        s = [count.dot(f, item) for item in items[y, :-1]] + [float(items[y, -1] @ f)]
        weights = [math.exp(count.times(5.5, x)) for x in s]
        product = count.dot(weights, s)
        square = count.dot(weights, [count.dot(row, weights) for row in grams[y]])
        count.times(1.0, product / math.sqrt(square))
    [count.dot(items[0, 0], item) for item in items[0]]  # the row of the item that was stored
    assert count.count == sum(own_macs("dmn", DmnParams(k=k), CostShape(c, d)).values())


@given(SIZES)
@settings(max_examples=20)
def test_ristretto(sizes):
    c, images, d, seed = sizes
    rng = np.random.default_rng(seed)
    zero_shot = ZeroShot(unit(rng, c, d), tuple(map(str, range(c))))
    client, exchange = create("ristretto", zero_shot), create_exchange("ristretto", zero_shot)
    for f in unit(rng, images, d):
        client.predict(f)
    sync([("me", client)], exchange)
    before, head, f = client.summary(), client.head, unit(rng, d)
    plain = [float(x) for x in zero_shot.scale * zero_shot.precise_text @ f.astype(float)]  # which zero-shot has, too
    count = Counter()
    added = [count.dot(row, f) + b for row, b in zip(head.weights, head.bias, strict=True)]
    np.testing.assert_allclose(client.predict(f).scores, np.add(plain, added), rtol=1e-9, atol=1e-9)
    exponents = [x + count.times(head.trust, h) for x, h in zip(plain, added, strict=True)]
    weights = [math.exp(x - max(exponents)) for x in exponents]
    labels = [weight / sum(weights) for weight in weights]
    sums = [[count.times(label, x) for x in f] for label in labels]
    after = client.summary()
    np.testing.assert_allclose(after.counts - before.counts, labels, atol=1e-9)
    both = after.counts[:, None] * after.means - before.counts[:, None] * before.means
    np.testing.assert_allclose(both, sums, atol=1e-9)
    shape = CostShape(c, d)
    assert count.count == sum(direct_macs("ristretto", client.params, shape).values())
    assert sum(own_macs("ristretto", client.params, shape).values()) == count.count + 2 * c


# --- the paper's numbers -------------------------------------------------------------------------------------


def test_the_papers_numbers():
    shape, latte = CostShape(100, 512), PRESETS["cifar100c"]
    terms = direct_macs("latte", latte, shape)
    assert terms["similarity"] + terms["weighted sum"] + terms["product"] == 870_400 == 2 * 100 * 8 * 512 + 100 * 512
    assert short_count(sum(terms.values())) == "871 K"
    assert traffic("latte", latte, shape).vectors == 614_400
    paper = paper_costs()
    assert short_count(traffic("latte", latte, shape).vectors) == paper["latte"].bytes_per_round
    assert short_count(traffic("dmn-global", DmnParams(k=20), shape).vectors) == paper["dmn-global"].bytes_per_round
    assert short_count(VIT_B_16.macs) == paper["clip"].macs
    assert short_count(passes_macs("tpt", VIT_B_16.macs, CLIP_TEXT.macs, 64, 100)) == paper["tpt"].macs


def _resnet_weights(layers, width, dim, side):
    """CLIP's ResNet: a stem of three convolutions, bottlenecks, attention as pooling; norms of two weights."""

    def conv(inputs, outputs, kernel):
        return inputs * outputs * kernel**2 + 2 * outputs

    total, channels = conv(3, width // 2, 3) + conv(width // 2, width // 2, 3) + conv(width // 2, width, 3), width
    for stage, blocks in enumerate(layers):
        planes = width * 2**stage
        for block in range(blocks):
            total += conv(channels, planes, 1) + conv(planes, planes, 3) + conv(planes, 4 * planes, 1)
            total += conv(channels, 4 * planes, 1) if block == 0 else 0
            channels = 4 * planes
    attention = (side**2 + 1) * channels + 3 * (channels + 1) * channels + (channels + 1) * dim
    return total + attention


def _vit_weights(tokens, patch, width, layers, dim):
    norm = 2 * width
    block = 4 * (width + 1) * width + (width + 1) * 4 * width + (4 * width + 1) * width + 2 * norm
    return 3 * patch**2 * width + width + tokens * width + 2 * norm + layers * block + width * dim


def test_the_size_of_the_encoders_and_a_rounds_share():
    """Table 3 has (172M) for the encoder; the text says that a round is less than 0.4 % of it."""
    assert PARAMETERS["ViT-B/16"] == _vit_weights(197, 16, 768, 12, 512)
    assert PARAMETERS["RN50"] == _resnet_weights((3, 4, 6, 3), 64, 1024, 7)
    assert f"({short_count(encoder_bytes('ViT-B/16'))})" == paper_costs()["clip"].bytes_per_round == "(172 M)"
    share = 100 * traffic("latte", PRESETS["cifar100c"], CostShape(100, 512)).vectors / encoder_bytes("ViT-B/16")
    assert 0.35 < share < 0.4
    with pytest.raises(ValueError, match="backbone"):
        encoder_bytes("ViT-L/14")


def test_a_vision_transformer_of_transformers_has_as_many_weights():
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.CLIPVisionConfig(
        image_size=48, patch_size=16, hidden_size=64, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=256, projection_dim=24,
    )  # fmt: skip
    model = transformers.CLIPVisionModelWithProjection(config)
    assert sum(weight.numel() for weight in model.parameters()) == _vit_weights(10, 16, 64, 3, 24)


@given(st.integers(2, 200), st.integers(1, 600), st.integers(0, 20))
def test_bytes_by_laying_them_out(classes, dim, k_e):
    """Every part of a round as an array of its type, laid end to end."""
    kinds = {"fp32": (np.float32, np.float32, 0), "fp16": (np.float16, np.float16, 0), "int8": (np.int8, np.float16, 4)}
    for precision, (number, certainty, scale) in kinds.items():
        sent = traffic("latte", LatteParams(k_e=k_e), CostShape(classes, dim), precision)
        ways = ((classes, 0, sent.up, sent.whole_up), (classes * k_e, classes * k_e, sent.down, sent.whole_down))
        for vectors, entropies, bare, whole in ways:
            assert bare == np.zeros((vectors, dim), number).nbytes
            bits = np.packbits(np.zeros(vectors, bool)).nbytes
            assert whole == bare + np.zeros(entropies, certainty).nbytes + scale * vectors + bits


@given(st.integers(2, 200), st.integers(1, 600))
def test_the_bytes_of_the_messages_of_ristretto(classes, dim):
    """The arrays that are really sent, matrices in half and all else in single precision."""
    zero_shot = ZeroShot(unit(np.random.default_rng(0), classes, dim), tuple(map(str, range(classes))))
    client = create("ristretto", zero_shot)
    sent = traffic("ristretto", client.params, CostShape(classes, dim))
    messages = (
        (client.summary(), ("counts", "means"), sent.up),
        (client.head, ("weights", "bias", "trust"), sent.down),
    )
    for one, names, expected in messages:
        arrays = [getattr(one, name) for name in names]
        assert expected == sum(a.astype(np.float16 if a.ndim == 2 else np.float32).nbytes for a in arrays)
    assert sent.vectors == sent.whole == 4 * classes * dim + 8 * classes + 4


def test_the_work_of_a_server():
    shape = CostShape(10, 512)
    latte, ristretto = (server_macs(name, resolve(name), shape, 20_000) for name in ("latte", "ristretto"))
    assert latte == {"similarity": 20_000**2 * 10 * 512}
    assert ristretto["routing"] == ristretto["pooling"] == latte["similarity"] and ristretto["inverse"] == 512**3
    assert all(server_macs(name, None, shape, 5) is None for name in ("clip", "tda", "tda-global"))


class TwoNumbers(Clip):
    """Sends two vectors and a number up, a number down."""

    Upload = Download = Prediction
    summary = receive = exchange_for = None

    @staticmethod
    def messages(params, classes):
        return Content(2, numbers=1), Content(0, numbers=1)


def test_a_method_of_ones_own_says_what_it_sends(monkeypatch):
    monkeypatch.setitem(METHODS, "two", Registration("two:TwoNumbers"))
    monkeypatch.setitem(sys.modules, "two", SimpleNamespace(TwoNumbers=TwoNumbers))
    sent = traffic("two", None, CostShape(10, 8), "int8")
    assert (sent.up, sent.down, sent.whole_up, sent.whole_down) == (2 * 8 + 4, 4, 2 * 8 + 4 + 8, 4)


def test_who_sends_nothing():
    assert all(traffic(name, None, CostShape(10, 8)) is None for name in ("clip", "zero", "vte", "tpt", "tda", "dmn"))


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="precision"):
        traffic("latte", LatteParams(), CostShape(10, 8), "fp8")
    with pytest.raises(ValueError, match="method"):
        direct_macs("mine", None, CostShape(10, 8))


# --- encoders ------------------------------------------------------------------------------------------------


def test_transformers_as_torch_counts_them():
    """Random CLIP models of transformers, counted by torch, equal the closed form."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for image, patch, width, layers in ((32, 8, 32, 2), (48, 16, 64, 3)):
        config = transformers.CLIPVisionConfig(
            image_size=image, patch_size=patch, hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
            intermediate_size=4 * width, projection_dim=24,
        )  # fmt: skip
        model = transformers.CLIPVisionModelWithProjection(config).eval()
        pixels = torch.zeros(1, 3, image, image)
        with torch.no_grad():
            counted = counted_macs(lambda model=model, pixels=pixels: model(pixel_values=pixels))
        assert counted == vit(image, patch, width, layers, 24).macs
    config = transformers.CLIPTextConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        max_position_embeddings=7, projection_dim=24, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    text = transformers.CLIPTextModelWithProjection(config).eval()
    with torch.no_grad():
        counted = counted_macs(lambda: text(input_ids=torch.tensor([[0, 5, 6, 7, 8, 9, 1]])))
    assert counted == Tower(7, 32, 2, 24).macs


def test_without_torch_the_pip_line_is_given():
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ModuleNotFoundError, match=r"the extra torch"):
            counted_macs(lambda: None)


# --- measuring -----------------------------------------------------------------------------------------------


def test_measured_memory_holds_the_state():
    shape, params = CostShape(10, 64), LatteParams(k_l=4, k_e=3)
    found = measure_method("latte", params, shape, images=20)
    state = 10 * (4 + 3 + 4) * 64 * 4  # local, external and merged vectors, float32
    assert found.peak > state
    assert found.seconds > 0


def test_reference_has_the_asked_size():
    reference = matmul_reference(10**8, repeats=1)
    assert "100,663,296 MACs" in reference.what  # 2048 · 2048 · 24
    assert reference.seconds > 0


def test_command_prints_the_table_and_json():
    arguments = ["paper", "cost", "--classes", "10", "--dim", "32", "--views", "4", "--encoder-macs", "1e8"]
    text = CliRunner().invoke(cli, arguments)
    assert text.exit_code == 0, text.output
    assert "dmn-global+k=20" in text.output
    told = json.loads(CliRunner().invoke(cli, [*arguments, "--json", "--methods", "latte:cifar100c"]).output)
    (row,) = told["methods"]
    assert row["macs"] == sum(direct_macs("latte", PRESETS["cifar100c"], CostShape(10, 32)).values())
    assert row["traffic"]["int8"]["down"] == 10 * 5 * 32
    assert row["relative"] > 1


def test_the_share_of_the_encoder_beside_the_papers(monkeypatch):
    """Without options the encoder is the paper's, so its size is known."""
    monkeypatch.setattr("latte.paper.cost.matmul_reference", lambda macs: None)
    arguments = ["paper", "cost", "--methods", "clip,dmn-global:paper,latte:cifar100c"]
    text = CliRunner().invoke(cli, arguments).output
    assert "the encoder in fp16, sent once: 172 M; paper: (172 M)" in text
    assert "latte: a round in fp16 is 0.356 % of it; paper: less than 0.4 %" in text
    assert "dmn-global: a round in fp16 is 1.19 % of it\n" in text
    assert "sent once" not in CliRunner().invoke(cli, [*arguments, "--encoder-macs", "1e6"]).output
    assert json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).output)["encoder_bytes"] == 172_385_280
    other = CliRunner().invoke(cli, [*arguments, "--classes", "10"]).output
    assert "sent once: 172 M\n" in other  # what the paper says is for its own sizes


def test_numbers_are_short():
    assert [short_count(n) for n in (0, 7, 999, 999_600, 1_000, 12_345_678)] == [
        "0",
        "7",
        "999",
        "1 M",
        "1 K",
        "12.3 M",
    ]


def test_the_papers_numbers_stand_beside_its_own_sizes_only():
    arguments = ["paper", "cost", "--methods", "latte:cifar100c", "--encoder-macs", "1e8"]
    assert "614 K" in CliRunner().invoke(cli, arguments).output.split("paper (fp16)")[1]
    other = CliRunner().invoke(cli, [*arguments, "--classes", "10"]).output
    assert "614 K" not in other
