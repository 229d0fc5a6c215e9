"""Missing packages, places that cannot be written and missing data are found before the first second of work.

Every case names the function that would do the work; it must not be called.
"""

import sys

import pytest

import tiny_onnx
from latte.cli import main
from small_benchmark import small_file

ENCODER = f"onnx:{tiny_onnx.FOLDER}"
RUN = ("run", "--benchmark", "cifar10c-mini", "--methods")
TPT = (*RUN, "tpt", "--set", "text_encoder=hf:some/model")
PACKAGES = {  # command: the package that is missing, the extra that brings it, the work
    ("paper", "theory", "--quick"): ("matplotlib", "report", "latte.paper.theory.study.run_study"),
    ("paper", "figure", "ablation"): ("matplotlib", "report", "latte.experiment.plan.open_benchmark"),
    ("paper", "figure", "memory"): ("sklearn", "report", "latte.experiment.plan.open_benchmark"),
    ("paper", "figure", "all"): ("sklearn", "report", "latte.experiment.plan.open_benchmark"),
    ("classify", "PICTURES", "--classes", "a,b", "--encoder", ENCODER): (
        "onnxruntime", "onnx", "latte.encoders.load_encoder",
    ),
    ("classify", "PICTURES", "--classes", "a,c", "--encoder", ENCODER): ("PIL", "onnx", "latte.encoders.load_encoder"),
    ("embed", "classes:PICTURES", "--encoder", ENCODER, "--out", "x.safetensors"): (
        "tokenizers", "onnx", "latte.data.images.open_images",
    ),
    ("export", "hf:some/model", "out"): ("torch", "export", "latte.encoders.export.load_encoder"),
    TPT: ("torch", "torch", "latte.experiment.runner.execute"),
    (*RUN, "clip", "--executor", "dask:tcp://127.0.0.1:1"): (
        "distributed", "cluster", "latte.experiment.runner.execute",
    ),
    ("sweep", *RUN[1:], "clip", "--over", "T=1,2", "--executor", "dask:x"): (
        "distributed", "cluster", "latte.experiment.sweep.execute_sweeps",
    ),
    ("tune", *RUN[1:], "tda", "--executor", "dask:x"): (
        "distributed", "cluster", "latte.experiment.sweep.execute_sweeps",
    ),
    ("paper", "cost", "--encoder", ENCODER): ("onnxruntime", "onnx", "latte.paper.cost.cost_rows"),
}  # fmt: skip
PLACES = {  # command: the option that is named, the work
    ("paper", "theory", "--out", "PLACE"): ("--out", "latte.paper.theory.study.run_study"),
    ("paper", "figure", "ablation", "--out", "PLACE"): ("--out", "latte.experiment.plan.open_benchmark"),
    ("classify", "PICTURES", "--classes", "a,b", "--encoder", ENCODER, "--out", "PLACE"): (
        "csv", "latte.encoders.load_encoder",
    ),
    ("classify", "PICTURES", "--classes", "a,b", "--encoder", ENCODER, "--memory", "PLACE"): (
        "memory", "latte.encoders.load_encoder",
    ),
    ("embed", "classes:PICTURES", "--encoder", ENCODER, "--out", "PLACE.safetensors"): (
        "--out", "latte.data.images.open_images",
    ),
    ("export", "hf:some/model", "PLACE"): ("OUT", "latte.encoders.export.load_encoder"),
    (*RUN, "clip", "--runs", "PLACE"): ("--runs", "latte.experiment.runner.execute"),
    ("sweep", *RUN[1:], "clip", "--over", "T=1,2", "--runs", "PLACE"): (
        "--runs", "latte.experiment.sweep.execute_sweeps",
    ),
    ("tune", *RUN[1:], "tda", "--runs", "PLACE"): ("--runs", "latte.experiment.sweep.execute_sweeps"),
    ("tune", *RUN[1:], "tda", "--out", "PLACE"): ("--out", "latte.experiment.sweep.execute_sweeps"),
    ("report", "RUNS", "--out", "PLACE"): ("--out", "latte.experiment.collection.find_runs"),
    ("paper", "table", "vlcs", "--out", "PLACE"): ("--out", "latte.paper.reproduce.paper_files"),
    ("paper", "table", "vlcs", "--runs", "PLACE"): ("--runs", "latte.paper.reproduce.paper_files"),
    ("data", "convert", "DATA.npz", "PLACE.safetensors"): ("OUT", "latte.data.embeddings.convert_npz"),
    ("data", "fetch", "cifar10", "--out", "PLACE"): ("--out", "latte.data.fetch.fetch_dataset"),
    ("diagnose", "RUNS", "--out", "PLACE"): ("--out", "latte.analysis.diagnose.open_replay"),
    ("demo", "--out", "PLACE"): ("--out", "latte.files.atomic.write_text"),
}  # fmt: skip
DATA = {  # command: what the message says, the work
    (*RUN[:1], "--benchmark", "nowhere", "--methods", "clip"): ("LATTE_DATA", "latte.experiment.runner.execute"),
    ("run", "--benchmark", "cifar10c-mini"): ("--methods clip,latte,ristretto", "latte.experiment.runner.execute"),
    ("paper", "figure", "ablation", "--benchmark", "nowhere"): ("LATTE_DATA", "latte.paper.figures.make.make_figures"),
    ("embed", "classes:nowhere", "--encoder", ENCODER, "--out", "x.safetensors"): (
        "nowhere", "latte.encoders.load_encoder",
    ),
    ("paper", "table", "vlcs"): ("latte embed vlcs:IMAGES", "latte.experiment.runner.execute"),
    ("data", "fetch", "vlcs"): ("latte data fetch vlcs --from DIR", "latte.data.fetch.download"),
    ("classify", "PICTURES", "--classes", "classes.txt", "--encoder", ENCODER): (
        "no file", "latte.encoders.load_encoder",
    ),
    (*RUN, "tpt", "--set", f"text_encoder={ENCODER}"): (
        "want hf:ID, hf:DIR or openclip:MODEL/WEIGHTS", "latte.experiment.runner.execute",
    ),
    (*RUN, "tpt", "--set", "text_encoder=local:nowhere"): ("nowhere", "latte.experiment.runner.execute"),
}  # fmt: skip


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command and returns what it wrote to stderr; the work must not begin."""
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATTE_DATA", str(tmp_path / "data"))
    for name in ("pictures/a", "runs", "data"):
        (tmp_path / name).mkdir(parents=True)
    for number in range(2):
        Image.new("RGB", (9, 9)).save(tmp_path / "pictures" / "a" / f"{number}.png")
    small_file(tmp_path / "data")
    monkeypatch.setattr("latte.experiment.plan.check_data_views", lambda *_: None)  # the small file has one view
    (tmp_path / "x.npz").write_bytes(b"")
    (tmp_path / "file").write_text("mine")

    def run(arguments, work, place=""):
        import importlib

        module, _, name = work.rpartition(".")
        called = importlib.import_module(module)
        monkeypatch.setattr(called, name, lambda *_, **__: pytest.fail(f"{work} began"))
        words = {"PICTURES": "pictures", "RUNS": "runs", "DATA.npz": "x.npz", "classes:PICTURES": "classes:pictures"}
        typed = [words.get(word, word).replace("PLACE", place) for word in arguments]
        with pytest.raises(SystemExit) as left:
            main(typed)
        output = capsys.readouterr()
        assert left.value.code == 2, output.err
        assert not output.out and "Traceback" not in output.err
        return output.err

    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    yield run
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == before, "nothing is left behind"
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("arguments", PACKAGES, ids=" ".join)
def test_missing_packages(arguments, call, monkeypatch):
    package, extra, work = PACKAGES[arguments]
    error = None
    import importlib

    importlib.import_module(work.rpartition(".")[0])  # before the package is gone
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    error = call(arguments, work)
    assert f"{package} is not installed" in error and "pip install" in error and f"(the extra {extra}" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("place", ["file/inside", "file/deeper/inside"])
@pytest.mark.parametrize("arguments", PLACES, ids=" ".join)
def test_places_that_cannot_be_written(arguments, place, call):
    option, work = PLACES[arguments]
    error = call(arguments, work, place)
    assert option in error and "file" in error.splitlines()[-1]


@pytest.mark.parametrize("arguments", DATA, ids=" ".join)
def test_missing_data(arguments, call):
    message, work = DATA[arguments]
    assert message in call(arguments, work)


def test_a_dry_run_needs_no_place_to_write(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as left:
        main([*RUN, "clip", "--dry-run", "--runs", "file/inside"])
    assert left.value.code == 0, capsys.readouterr().err
