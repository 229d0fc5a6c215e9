"""``latte paper table`` on small files that are named and labelled as the real ones, and without them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from latte.cli.paper import table as paper_table
from latte.cli.report import report as report_command
from latte.core.zero_shot import ZeroShot
from latte.data.corruptions import CORRUPTIONS
from latte.data.embeddings import load_embeddings, save_embeddings
from latte.data.federation import Embeddings, federate
from latte.experiment import tune
from latte.experiment.config import parameters
from latte.experiment.runner import Options
from latte.experiment.sweep import SweepAxis, execute_sweeps
from latte.experiment.tune import read_tuned
from latte.paper import reproduce as baselines
from latte.paper.reproduce import benches, facts, make_search, other_seeds, paper_files, tuning_source

pytestmark = pytest.mark.usefixtures("one_process")
CLASSES = ("bird", "car", "chair", "dog", "person")
PAPER_ORDER = [
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "gaussian_blur", "snow", "frost", "fog", "brightness", "spatter", "contrast", "elastic_transform",
    "pixelate", "jpeg_compression", "saturate",
]  # fmt: skip
DOMAINS = ("Caltech101", "LabelMe", "SUN09", "VOC2007")


def embeddings(views=1, encoder="openclip:ViT-B-16/openai", text_seed=0):
    """Random clusters: 4 domains of 50 images in 5 classes; the first view is the same whatever ``views`` is."""
    text = np.random.default_rng(text_seed).normal(size=(5, 16))
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    labels, domain = np.tile(np.arange(5), 40), np.repeat(np.arange(4), 50)
    noise = np.random.default_rng(1).normal(size=(64, 200, 16)).transpose(1, 0, 2)[:, :views]
    rows = text[labels][:, None] + 0.35 * noise
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    metadata = {"encoder": encoder} if encoder else {}
    zero_shot = ZeroShot(text, CLASSES, 100.0)
    return Embeddings("vlcs", zero_shot, rows.astype(np.float32), labels, domain, DOMAINS, metadata)


def corrupted(images=114, which=None, seed=0):
    """CIFAR-100-C in small, corruptions in alphabetical order: every image under all, or one of ``which`` each."""
    text = np.random.default_rng(0).normal(size=(5, 16))
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    domains = tuple(sorted(CORRUPTIONS))
    pairs = [(i, d) for i in range(images) for d in (range(19) if which is None else [which[i]])]
    index, domain = np.array(pairs).T
    rows = text[index % 5][:, None] + 0.35 * np.random.default_rng(seed).normal(size=(len(index), 1, 16))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    metadata = {"encoder": "openclip:ViT-B-16/openai"}
    zero_shot = ZeroShot(text, CLASSES, 100.0)
    views = rows.astype(np.float32)
    return Embeddings("cifar100c", zero_shot, views, index % 5, domain, domains, metadata, index)


def one_each(first, images=114):
    """Give every image one corruption, six images each; another ``first``, another corruption for most."""
    return (np.arange(images) + np.arange(images) // 19 * first) % 19


def invoke(data, *more, benchmark="vlcs"):
    arguments = [benchmark, "--data", data, "--runs", data / "runs", "--seeds", "0-1", *more]
    return CliRunner().invoke(paper_table, list(map(str, arguments)))


@pytest.fixture
def small_search(monkeypatch):
    """A search of two seeds over few points, where the whole of it is not what is tested."""
    dmn, tda = (
        (SweepAxis("method.weight", (0.3, 3.0)),),
        (SweepAxis("method.alpha", (1.0, 2.0)), SweepAxis("method.beta", (5.0,))),
    )
    monkeypatch.setattr(tune, "tuning_grid", lambda name: dmn if name.startswith("dmn") else tda)
    monkeypatch.setattr(baselines, "SEEDS", 2)


def test_a_missing_file_is_named_with_the_command_that_makes_it(tmp_path):
    shown = invoke(tmp_path)
    assert isinstance(shown.exception, ValueError)
    message = str(shown.exception)
    assert str(tmp_path / "vlcs-vit-b-16.safetensors") in message
    assert "latte embed vlcs:IMAGES --encoder openclip:ViT-B-16/openai --out " in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="is not there"):
        benches(paper_files("vlcs", "RN50", tmp_path), [0])


@pytest.mark.slow
def test_the_whole_table(tmp_path):
    save_embeddings(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    save_embeddings(tmp_path / "vlcs-vit-b-16-views64.safetensors", embeddings(64))
    shown = invoke(tmp_path, "--format", "json")
    assert shown.exit_code == 0, shown.output
    (table,) = json.loads(shown.stdout)
    rows = {row["label"]: row for row in table["rows"]}
    assert list(rows) == [
        "CLIP", "VTE", "Zero", "TDA (local)", "TDA (global)", "DMN-ZS (local)", "DMN-ZS (global)", "Latte",
        "Latte [variant=released]",
    ]  # fmt: skip
    assert rows["Latte"]["cells"]["paper"]["mean"] == 82.57
    cell = rows["TDA (global)"]["cells"]["domain:SUN09"]
    assert (cell["paper"], cell["paper_sd"]) == (76.95, 0.05)
    assert rows["CLIP"]["cells"]["domain:SUN09"]["paper_sd"] is None  # the order of the stream does not touch it
    tuned = ("TDA (local)", "TDA (global)", "DMN-ZS (local)", "DMN-ZS (global)")
    assert {rows[name]["setting"] for name in tuned} == {"tuned"}
    assert {rows[name]["setting"] for name in ("Latte", "Latte [variant=released]", "Zero")} == {"preset"}
    assert all(row["seeds"] == [0, 1] for row in rows.values())
    assert (table["benchmark"], table["backbone"]) == ("vlcs", "ViT-B/16")
    assert "The paper has 10,729 samples; these results have 200." in table["notes"]
    assert "left out: TPT" in shown.stderr

    again = invoke(tmp_path, "--format", "json")
    assert again.stdout == shown.stdout

    notes = " ".join(table["notes"])
    (choice,) = (tmp_path / "runs").glob("tuned-vlcs-vit-b-16-*.json")
    assert "Tuned on seeds 100, 101, 102, 103, 104, each row by itself" in notes
    assert "DMN-ZS (local) and DMN-ZS (global) weight 0.001 0.003 0.01 0.03 0.1 0.3 1 3 10 30 100 300 1000." in notes
    assert str(choice) in notes
    assert "saw the reported images and their labels, split among other clients, as in the paper" in notes
    assert "DMN-ZS holds 20 images per class" in notes
    assert "(172 M) in the paper" in notes
    assert "less than 0.4 % (beside Table 3: CIFAR-100-C, ViT-B/16) in the paper" in notes
    encoder, latte, share, dmn = table["facts"]
    assert (encoder["here"], encoder["paper"]) == (2 * 86_192_640, "(172 M)")
    assert (latte["here"], dmn["here"]) == (5 * (1 + 12) * 16 * 2, (1 + 5 * 20) * 16 * 2)  # k_e of VLCS; DMN's k
    assert share["here"] == 100 * latte["here"] / encoder["here"]

    for kind, sign in (
        ("text", "±0.05)"),
        ("markdown", "±0.05)"),
        ("latex", "$\\pm$ 0.05)"),
        ("html", "±0.05</small>"),
    ):
        text = invoke(tmp_path, "--format", kind).stdout
        assert f"76.95 {sign}" in text, kind
        for words in ("tuned", "172 M", "0.4 %", "Tuned on seeds 100"):
            assert words in " ".join(text.split()), kind
    _check_the_choice(tmp_path)


def _check_the_choice(tmp_path):
    """The choice is made on other seeds, and used."""
    (path,) = (tmp_path / "runs").glob("tuned-*.json")
    tuned = read_tuned(path)
    assert tuned.saw.seeds == (100, 101, 102, 103, 104)
    assert {name: len(entry.grid) for name, entry in tuned.methods.items()} == {
        "tda": 20, "tda-global": 20, "dmn": 13, "dmn-global": 13,
    }  # fmt: skip
    (folder,) = (folder for folder in (tmp_path / "runs").glob("vlcs-*") if "views64" not in folder.name)
    config = json.loads((folder / "config.json").read_text())["config"]
    assert config["seeds"] == [0, 1]
    for method in config["methods"]:
        if method["name"] in tuned.methods:
            entry = tuned.methods[method["name"]]
            assert (method["params"], method["setting"]) == (entry.params, "tuned")
            assert entry.accuracy == max(point["accuracy"] for point in entry.grid)
            assert method["params"].get("k") == (20 if method["name"].startswith("dmn") else 3)
    report = CliRunner().invoke(report_command, [str(tmp_path / "runs"), "--format", "json"])
    shown = json.loads(report.stdout)
    assert {row["setting"] for table in shown if table["kind"] == "results" for row in table["rows"]} >= {"tuned"}
    assert [len(entry["points"]) for entry in shown if entry["kind"] == "tuning"].count(13) == 2
    text = CliRunner().invoke(report_command, [str(tmp_path / "runs")]).stdout
    assert text.count("Tuning over weight on ") == 2 and "0.003" not in text  # no points of the search


def test_an_interrupted_search_goes_on(tmp_path, small_search):
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
        save_embeddings(tmp_path / name / "vlcs-vit-b-16.safetensors", embeddings())
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    (bench,) = benches(paper_files("vlcs", "ViT-B/16", stopped)[:1], (0, 1))
    search = make_search(bench, "tuned", stopped / "runs")
    events = execute_sweeps(search.tunings, search.folder, Options(jobs=1), "tuning")
    for _ in range(5):
        next(events)
    events.close()
    assert not search.file.exists()
    before = {path: path.stat().st_mtime_ns for path in search.folder.glob("*/*/done")}
    assert invoke(stopped).exit_code == invoke(whole).exit_code == 0
    (one,), (other,) = ((folder / "runs").glob("tuned-*.json") for folder in (stopped, whole))
    assert one.read_bytes() == other.read_bytes()
    assert one.name == other.name
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_without_tuning_the_rows_are_the_defaults_and_say_so(tmp_path):
    save_embeddings(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    shown = invoke(tmp_path, "--baselines", "default", "--format", "json")
    assert shown.exit_code == 0, shown.output
    (table,) = json.loads(shown.stdout)
    rows = {row["method"]: row["setting"] for row in table["rows"]}
    assert {rows[name] for name in ("tda", "tda-global", "dmn", "dmn-global")} == {"default"}
    assert "do not follow its protocol" in " ".join(table["notes"])
    assert table["facts"][3]["here"] == (1 + 5 * 50) * 16 * 2  # the k of DMN's own code
    assert not list((tmp_path / "runs").glob("tun*"))


def test_the_search_on_the_reported_seeds_is_an_oracle(tmp_path, small_search):
    save_embeddings(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    shown = invoke(tmp_path, "--baselines", "oracle", "--format", "json")
    assert shown.exit_code == 0, shown.output
    (table,) = json.loads(shown.stdout)
    rows = {row["method"]: row for row in table["rows"]}
    assert {rows[name]["setting"] for name in ("tda", "tda-global", "dmn", "dmn-global")} == {"oracle"}
    assert "an upper bound, not a result" in " ".join(table["notes"])
    (path,) = (tmp_path / "runs").glob("tuned-*.json")
    tuned = read_tuned(path)
    assert tuned.saw.seeds == (0, 1)
    best = tuned.methods["tda-global"].accuracy
    assert rows["tda-global"]["cells"]["micro"]["mean"] == pytest.approx(best)  # what it was chosen by is what it shows


def test_corruptions_in_the_papers_order_and_tuned_under_others(tmp_path, small_search):
    """A file with every image under every corruption: the search sees none of the reported rows."""
    whole = corrupted()
    save_embeddings(tmp_path / "cifar100c-vit-b-16.safetensors", whole)
    shown = invoke(tmp_path, "--format", "json", benchmark="cifar100c")
    assert shown.exit_code == 0, shown.output
    assert "tuning under the reported corruptions" not in shown.stderr
    (table,) = json.loads(shown.stdout)
    keys = [column["key"] for column in table["columns"]]
    assert [key.removeprefix("domain:") for key in keys if key.startswith("domain:")] == PAPER_ORDER
    assert sorted(PAPER_ORDER) != PAPER_ORDER and list(whole.domains) == sorted(PAPER_ORDER)
    cells = {row["method"]: row["cells"] for row in table["rows"]}
    assert (cells["dmn"]["domain:frost"]["paper"], cells["dmn"]["domain:frost"]["paper_sd"]) == (51.14, 0.48)
    assert "No image is in the tuning under a corruption under which a reported seed shows it" in " ".join(
        table["notes"]
    )
    (path,) = (tmp_path / "runs" / "tuning").glob("*.safetensors")
    searched = load_embeddings(path)
    rows = [client.samples for seed in (0, 1) for client in federate(whole, 3, seed).clients]
    reported = _pairs(whole, np.concatenate(rows))
    assert len(searched) == 114
    assert not _pairs(searched, slice(None)) & reported


def _pairs(found, rows):
    names = np.array(found.domains)[found.domain]
    return set(zip(found.index[rows].tolist(), names[rows].tolist(), strict=True))


def test_a_second_file_under_other_corruptions(tmp_path, small_search):
    reported, pool = corrupted(which=one_each(1)), corrupted(which=one_each(2), seed=1)
    save_embeddings(tmp_path / "cifar100c-vit-b-16.safetensors", reported)
    seeds = ("--seeds", "0")
    without = invoke(tmp_path, *seeds, benchmark="cifar100c")
    assert without.exit_code == 0, without.output
    assert "tuning under the reported corruptions: " in without.stderr
    command = "latte embed cifar100c:IMAGES --encoder openclip:ViT-B-16/openai --seed 1 --out "
    assert command in without.stderr
    assert "the paper tunes under other corruptions" in " ".join(without.stdout.split())
    save_embeddings(tmp_path / "cifar100c-vit-b-16-tuning.safetensors", pool)
    shown = invoke(tmp_path, *seeds, benchmark="cifar100c")
    assert shown.exit_code == 0, shown.output
    assert "tuning under" not in shown.stderr
    assert "No image is in the tuning under a corruption" in shown.stdout
    (path,) = (tmp_path / "runs" / "tuning").glob("*.safetensors")
    assert _pairs(load_embeddings(path), slice(None)) == _pairs(pool, slice(None)) - _pairs(reported, slice(None))
    assert len(load_embeddings(path)) < len(pool)


def test_a_tuning_file_of_another_classifier_is_refused_before_anything_runs(tmp_path):
    reported, other = corrupted(which=one_each(1)), corrupted(which=one_each(2))
    save_embeddings(tmp_path / "cifar100c-vit-b-16.safetensors", reported)
    zero_shot = ZeroShot(np.roll(other.zero_shot.text, 1, axis=0), CLASSES, 100.0)
    save_embeddings(tmp_path / "cifar100c-vit-b-16-tuning.safetensors", replace(other, zero_shot=zero_shot))
    shown = invoke(tmp_path, benchmark="cifar100c")
    assert "one encoder per comparison" in str(shown.exception)
    assert not (tmp_path / "runs").exists()


def test_table_3_in_its_own_setting_and_the_share_with_rn50(tmp_path):
    """The paper's bytes with its sizes; with RN50's wider embeddings and smaller encoder the share is above 0.4 %."""
    save_embeddings(tmp_path / "cifar100c-vit-b-16.safetensors", corrupted())
    (bench,) = benches(paper_files("cifar100c", "ViT-B/16", tmp_path)[:1], (0,))
    methods = tuple(replace(m, preset="paper") if m.name == "dmn-global" else m for m in bench.config.methods)
    plan = replace(bench, config=replace(bench.config, methods=methods)).plan()
    assert next(parameters(m)["k"] for m in plan.config.methods if m.name == "dmn-global") == 20
    names = tuple(f"c{i}" for i in range(100))
    shown = {}
    for backbone, dim in (("ViT-B/16", 512), ("RN50", 1024)):
        zero_shot = ZeroShot(np.eye(100, dim), names)
        shown[backbone] = [fact.sentence() for fact in facts(plan, "cifar100c", backbone, zero_shot)]
    claim = "less than 0.4 % (beside Table 3: CIFAR-100-C, ViT-B/16) in the paper."
    assert shown["ViT-B/16"] == [
        "Image encoder of CLIP ViT-B/16, 2 bytes per weight, sent once: 172 MB here, (172 M) in the paper.",
        "One round of Latte, vectors of 2 bytes per number: 614 KB here, 614 K in the paper.",
        f"One round of Latte against that encoder: 0.356 % here, {claim}",
        "One image of DMN-ZS (global), likewise: 2.05 MB here, 2.05 M in the paper.",
    ]
    assert shown["RN50"][0].endswith("sent once: 76.6 MB here.")
    assert shown["RN50"][2] == f"One round of Latte against that encoder: 1.6 % here, {claim}"


def test_the_seeds_of_the_search_are_never_reported():
    assert other_seeds(range(5)) == (100, 101, 102, 103, 104)
    assert other_seeds(range(98, 103)) == (103, 104, 105, 106, 107)


def test_only_corruptions_have_a_tuning_file():
    assert tuning_source("vlcs", "RN50", Path()) is None
    assert tuning_source("cifar100c", "ViT-B/16", Path("d")).path == Path("d/cifar100c-vit-b-16-tuning.safetensors")


def test_without_the_views_the_other_rows_are_shown(tmp_path):
    save_embeddings(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    shown = invoke(tmp_path, "--baselines", "default")
    assert shown.exit_code == 0, shown.output
    assert "vlcs-vit-b-16-views64.safetensors is not there (for VTE, TPT, Zero)" in shown.stderr
    assert "--views 63" in shown.stderr
    assert "Latte − TDA (local)" in shown.stdout


@pytest.mark.parametrize("encoder", ["mini-VLM", "openclip:RN50/openai"])
def test_another_encoder_is_refused_before_anything_runs(tmp_path, encoder):
    save_embeddings(tmp_path / "vlcs-vit-b-16.safetensors", embeddings(encoder=encoder))
    shown = invoke(tmp_path)
    assert isinstance(shown.exception, ValueError)
    assert encoder in str(shown.exception)
    assert not (tmp_path / "runs").exists()


def test_files_of_two_classifiers_are_refused(tmp_path):
    save_embeddings(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    save_embeddings(tmp_path / "vlcs-vit-b-16-views64.safetensors", embeddings(64, text_seed=5))
    with pytest.raises(ValueError, match="one encoder per comparison"):
        benches(paper_files("vlcs", "ViT-B/16", tmp_path), [0])


def test_names_of_files():
    names = {source.path.name for name in ("terra", "cifar100c") for source in paper_files(name, "RN50", Path())}
    assert names == {
        "terra-rn50.safetensors", "terra-rn50-views64.safetensors",
        "cifar100c-rn50.safetensors", "cifar100c-rn50-views64.safetensors",
    }  # fmt: skip


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A tiny CLIP of random weights under the name of the paper's, as a folder on somebody's disk."""
    pytest.importorskip("transformers")
    import tiny_models

    folder = tmp_path_factory.mktemp("models") / "openai" / "clip-vit-base-patch16"
    folder.mkdir(parents=True)
    return f"hf:{tiny_models.save_clip(folder)}"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """VLCS in small: 4 domains, 5 classes, two noisy pictures each."""
    from PIL import Image

    root, rng = tmp_path_factory.mktemp("VLCS"), np.random.default_rng(0)
    for domain in DOMAINS:
        for number, name in enumerate(CLASSES):
            (root / domain / name).mkdir(parents=True)
            for i in range(2):
                pixels = rng.normal(40 * number, 30, (32, 32, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / domain / name / f"{i}.png")
    return root


@pytest.mark.slow
def test_from_pictures_to_the_table(pictures, clip, tmp_path, monkeypatch):
    given = ("--images", pictures, "--encoder", clip, "--baselines", "default")
    said = invoke(tmp_path, *given, "--hours")
    assert said.exit_code == 0, said.output
    plain, viewed = (tmp_path / f"vlcs-vit-b-16{ending}.safetensors" for ending in ("", "-views64"))
    assert f"{plain}: 40 of 40 images, 40 passes: 0.0" in said.stderr
    assert f"{viewed}: 40 of 40 images with 64 views, 2560 passes: 0.0" in said.stderr
    assert "left out: TPT" in said.stderr and not list(tmp_path.iterdir())
    shown = invoke(tmp_path, *given, "--format", "json")
    assert shown.exit_code == 0, shown.output
    rows = [row["label"] for row in json.loads(shown.stdout)[0]["rows"]]
    assert rows[:3] == ["CLIP", "VTE", "Zero"] and "Latte" in rows
    made = load_embeddings(viewed)
    assert made.views.shape == (40, 64, 24) and made.metadata["encoder"] == "hf:clip-vit-base-patch16"
    again = invoke(tmp_path, *given)
    assert again.exit_code == 0 and "wrote" not in again.stderr, "the files are there: nothing is made again"


@pytest.mark.slow
def test_what_is_missing_is_said_before_the_first_second(pictures, clip, tmp_path, monkeypatch):
    from collections import namedtuple

    from latte.paper import pictures as making

    monkeypatch.setattr(making, "seconds_per_picture", lambda *_: pytest.fail("it has begun"))
    for arguments, message in (
        (("--images", pictures / "SUN09", "--encoder", clip), "Caltech101"),
        (("--images", pictures, "--encoder", clip, "--backbone", "RN50"), "got RN50 for embeddings of"),
        (("--images", pictures, "--encoder", "onnx:nowhere"), "nowhere"),
        (("--images", pictures, "--encoder", clip, "--text-encoder", "onnx:x"), "no gradients"),
        (("--images", pictures, "--encoder", clip, "--device", "cuda:99"), "device"),
    ):
        assert message in str(invoke(tmp_path, *arguments).exception)
    monkeypatch.setattr(making.shutil, "disk_usage", lambda place: namedtuple("Usage", "free")(1000))
    refused = invoke(tmp_path, "--images", pictures, "--encoder", clip)
    assert "0.0 GB are free, the files need 0.0 GB: give another --data" in str(refused.exception)
    assert not list(tmp_path.iterdir())
