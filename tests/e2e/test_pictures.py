"""From pictures to embeddings, labels and tables: the commands a practitioner types, as real processes."""

import json
import re
import signal
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tiny_onnx
import waiting

pytest.importorskip("onnxruntime")
ENCODER = f"onnx:{tiny_onnx.FOLDER}"


def run(*arguments, check=True):
    return waiting.latte(*arguments, check=check)


def make_pictures(root: Path, per_class: int = 6) -> Path:
    """Write root / domain / class / image: noise around a colour that depends on the class."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for domain in ("day", "night"):
        for number, name in enumerate(("cat", "dog", "sea_lion")):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for i in range(per_class):
                pixels = rng.normal(60 + 60 * number, 30, (40, 50, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return root


@pytest.fixture
def pictures(tmp_path):
    return make_pictures(tmp_path / "pictures")


def test_embed_then_run(pictures, tmp_path):
    out = tmp_path / "mine.safetensors"
    run("embed", f"folder:{pictures}", "--encoder", ENCODER, "--out", out)
    facts = json.loads(run("data", "show", out, "--json").stdout)
    assert facts["images"] == 36 and facts["domains"] == {"day": 18, "night": 18}
    assert facts["classes"] == ["cat", "dog", "sea_lion"]
    assert not Path(f"{out}.partial").exists()
    table = run(
        "run", "--benchmark", out, "--methods", "clip,latte", "--seeds", "0", "--set", "clients_per_domain=2",
        "--runs", tmp_path / "runs", "--json",
    )  # fmt: skip
    assert [row["method"] for row in json.loads(table.stdout)] == ["clip", "latte"]


def test_embed_writes_the_same_bytes_again(pictures, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        run(
            "embed",
            f"folder:{pictures}",
            "--encoder",
            ENCODER,
            "--out",
            tmp_path / name / "x.safetensors",
            "--views",
            3,
        )
    assert (tmp_path / "one" / "x.safetensors").read_bytes() == (tmp_path / "two" / "x.safetensors").read_bytes()


# the command line in a process that kills itself at the n-th event about a file whose name ends so
DYING = """
import os, signal, sys
from latte.cli import main
event, ending, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
left = [None] * count
def die(name, arguments):
    if name == event and any(str(argument).endswith(ending) for argument in arguments[:2]):
        del left[-1:]
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(die)
main(sys.argv[4:])
"""
DEATHS = [  # when, and how many chunks are finished then
    (("open", ".png", 300), 0),
    (("os.rename", "000000512.safetensors", 1), 1),
    (("open", ".png", 100), 1),
    (("os.rename", "000001024.safetensors", 1), 2),
    (("os.rename", "/x.safetensors", 1), 3),
]


@pytest.mark.slow
def test_an_interrupted_embed_resumes_to_identical_bytes(tmp_path):
    pictures = make_pictures(tmp_path / "many", per_class=200)  # 1,200 images: three chunks
    (tmp_path / "whole").mkdir()
    arguments = ["embed", f"folder:{pictures}", "--encoder", ENCODER, "--views", "1", "--out"]
    run(*arguments, tmp_path / "whole" / "x.safetensors")
    for death, chunks in DEATHS:
        killed = waiting.run(sys.executable, "-c", DYING, *death, *arguments, tmp_path / "x.safetensors")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        finished = (tmp_path / "x.safetensors.partial").glob("[0-9]*.safetensors")
        assert len(list(finished)) == chunks and not (tmp_path / "x.safetensors").exists(), death
    run(*arguments, tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "whole" / "x.safetensors").read_bytes()


def test_the_beginning_of_another_embedding_is_refused(pictures, tmp_path):
    out = tmp_path / "x.safetensors"
    broken = pictures / "day" / "cat" / "broken.png"
    broken.write_text("not a picture")
    assert run("embed", f"folder:{pictures}", "--encoder", ENCODER, "--out", out, check=False).returncode == 2
    answer = run("embed", f"folder:{pictures}", "--encoder", ENCODER, "--out", out, "--views", 2, check=False)
    assert answer.returncode == 2 and "another embedding" in answer.stderr


def test_bad_pictures_are_listed_counted_and_skipped_on_request(pictures, tmp_path):
    out = tmp_path / "x.safetensors"
    (pictures / "day" / "cat" / "text.jpg").write_text("not a picture")
    whole = (pictures / "day" / "cat" / "0.png").read_bytes()
    (pictures / "night" / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])
    answer = run("embed", f"folder:{pictures}", "--encoder", ENCODER, "--out", out, check=False)
    assert answer.returncode == 2 and "2 unreadable images" in answer.stderr and "Traceback" not in answer.stderr
    assert "text.jpg" in answer.stderr and "cut.png" in answer.stderr and not out.exists()
    run("embed", f"folder:{pictures}", "--encoder", ENCODER, "--out", out, "--skip-bad")
    assert json.loads(run("data", "show", out, "--json").stdout)["images"] == 36


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("foldr:x", "folder:PATH"), ("folder:", "followed by a path"), ("folder:/no/such", "not there"),
        ("vlcs:PICTURES", "Caltech101"), ("cifar10:PICTURES", "cifar-10-binary"), ("x", "PATH"),
    ],
)  # fmt: skip
def test_datasets_that_are_not_there(pictures, tmp_path, dataset, message):
    name = dataset.replace("PICTURES", str(pictures))
    answer = run("embed", name, "--encoder", ENCODER, "--out", tmp_path / "x.safetensors", check=False)
    assert answer.returncode == 2 and message in answer.stderr and "Traceback" not in answer.stderr
    assert not list(tmp_path.glob("x.safetensors*"))


def test_classify_prints_a_table_and_json_lines(pictures):
    plain = run("classify", pictures / "day", "--classes", "cat,dog,sea_lion", "--encoder", ENCODER)
    assert len(plain.stdout.splitlines()) == 19 and plain.stdout.startswith("prediction  probability  file\n")
    assert (
        plain.stderr.startswith("18 images, the memory changed ") and "not saved (--memory FILE does)" in plain.stderr
    )
    lines = run("classify", pictures / "day", "--classes", "cat,dog,sea_lion", "--encoder", ENCODER, "--json")
    rows = [json.loads(line) for line in lines.stdout.splitlines()]
    assert {row["label"] for row in rows} <= {"cat", "dog", "sea_lion"}
    for row in rows:
        assert 0 <= row["certainty"] <= 1
        assert all(1 / 3 <= row[name] <= 1 for name in ("probability", "zero_shot_probability"))


def test_the_python_example_of_the_docs_runs(pictures, capsys):
    page = (Path(__file__).parents[2] / "docs" / "pictures.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(code.replace("onnx:clip-b16", ENCODER).replace("photos", str(pictures)), "pictures.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 36


@pytest.mark.parametrize("method", ["latte", "ristretto", "tda", "ristretto+eta=2"])
def test_classify_goes_on_where_it_was(pictures, tmp_path, method):
    common = ("--classes", "cat,dog,sea_lion", "--encoder", ENCODER, "--json", "--method", method)
    whole = run("classify", pictures / "day", pictures / "night", *common).stdout
    memory = tmp_path / "memory.safetensors"
    halves = [run("classify", pictures / place, *common, "--memory", memory).stdout for place in ("day", "night")]
    assert "".join(halves) == whole
    rest = ("--encoder", ENCODER, "--memory", memory)
    other = run("classify", pictures / "day", "--classes", "cat,owl", *rest, "--method", method, check=False)
    assert other.returncode == 2 and "another task" in other.stderr
    if method != "latte":
        other = run("classify", pictures / "day", "--classes", "cat,dog,sea_lion", *rest, check=False)
        assert other.returncode == 2 and "want that of Latte: name another file" in other.stderr


def test_classify_reports_bad_pictures_and_goes_on(pictures):
    bad = pictures / "day" / "cat" / "text.jpg"
    bad.write_text("not a picture")
    answer = run("classify", pictures / "day", "--classes", "cat,dog", "--encoder", ENCODER, check=False)
    assert answer.returncode == 1 and "text.jpg" in answer.stderr and len(answer.stdout.splitlines()) == 19
    assert "19 images, 1 unreadable, the memory changed" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "--classes", "a,b"), "no such file"), (("PICTURES", "--classes", "a"), "--classes cat,dog"),
        (("PICTURES", "--classes", "a,a"), "twice"), (("EMPTY", "--classes", "a,b"), "without images"),
        (("PICTURES", "--classes", "a,b", "--encoder", "onnx:nowhere"), "nowhere"),
        (("PICTURES", "--classes", "a,b", "--templates", "nowhere.txt"), "templates"),
        (("PICTURES", "--classes", "a," + "very " * 400), "tokens"),
        (("PICTURES", "--classes", "classes.txt"), "'classes.txt', which is no file"),
        (("PICTURES", "--classes", "a,b", "--encoder", "clip-b16"), "onnx:DIR, hf:ID"),
        (("PICTURES", "--classes", "a,b", "--encoder", "openai/clip"), "did you mean hf:openai/clip?"),
        (("PICTURES", "--classes", "a,b", "--out", "no/such/a.csv"), "whose folder is not there"),
        (("PICTURES", "--classes", "a,b", "--out", "x", "--memory", "x"), "the same file"),
        (("PICTURES", "--classes", "a,b", "--method", "ristreto"), "ristretto"),
        (("PICTURES", "--classes", "a,b", "--method", "vte"), "other views"),
        (("PICTURES", "--classes", "a,b", "--method", "ristretto+eta=-1"), "eta"),
        (("PICTURES", "--classes", "a,b", "--zero-shot", "--memory", "m.safetensors"), "remembers nothing"),
    ],
)  # fmt: skip
def test_what_classify_refuses(pictures, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    given = [str(a).replace("PICTURES", str(pictures)).replace("EMPTY", str(tmp_path / "empty")) for a in arguments]
    given += [] if "--encoder" in given else ["--encoder", ENCODER]
    answer = run("classify", *given, check=False)
    assert answer.returncode == 2 and message in answer.stderr and "Traceback" not in answer.stderr


@pytest.mark.slow
def test_real_pictures_give_the_recorded_table(shared, tmp_path):
    """Embed PACS pictures with the small real model, run, and compare with the recorded embeddings of the files."""
    with tarfile.open(shared / "data" / "images" / "pacs_60pc.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    out = tmp_path / "made.safetensors"
    run("embed", f"pacs:{tmp_path / 'PACS'}", "--encoder", f"onnx:{shared / 'data' / 'mini-vlm'}", "--out", out)
    recorded = same_pictures(shared, out, tmp_path / "recorded.npz")
    tables = []
    for file in (out, recorded):
        answer = run(
            "run", "--benchmark", file, "--methods", "clip,latte:cifar10c", "--seeds", "0",
            "--runs", tmp_path / "runs", "--json",
        )  # fmt: skip
        tables.append({row["method"]: row["accuracy"] for row in json.loads(answer.stdout)})
    assert tables[0]["clip"] == pytest.approx(tables[1]["clip"], abs=0.3)
    assert tables[0]["latte"] == pytest.approx(tables[1]["latte"], abs=0.5)


def same_pictures(shared: Path, made: Path, target: Path) -> Path:
    """Write the recorded embeddings of the pictures in ``made``, in its order, and return the file."""
    from latte.data.embeddings import load_embeddings

    ours = load_embeddings(made)
    with np.load(shared / "data" / "embeddings" / "pacs.npz", allow_pickle=False) as file:
        recorded = {name: file[name] for name in file.files}
    place = {"/".join(str(path).replace("\\", "/").split("/")[-3:]): i for i, path in enumerate(recorded["paths"])}
    rows = np.array([place[path] for path in json.loads(ours.metadata["paths"])])
    cosine = (recorded["emb"][rows].astype(np.float32) * ours.views[:, 0].astype(np.float32)).sum(axis=1)
    assert cosine.min() > 0.999
    order = [list(map(str, recorded["domains"])).index(name) for name in ours.domains]
    assert [order[d] for d in ours.domain] == recorded["domain"][rows].tolist()
    assert [ours.zero_shot.classnames[y] for y in ours.labels] == [
        str(recorded["classes"][y]) for y in recorded["label"][rows]
    ]
    np.savez(
        target, emb=ours.views[:, 0] * 0 + recorded["emb"][rows], label=ours.labels, domain=ours.domain,
        domains=np.array(ours.domains), classes=np.array(ours.zero_shot.classnames), meta=recorded["meta"],
        text=recorded["text"][[list(map(str, recorded["classes"])).index(c) for c in ours.zero_shot.classnames]],
    )  # fmt: skip
    return target
