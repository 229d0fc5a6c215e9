"""``latte classify`` with labels and flags: what it learns, what it proves, and that nothing else changes."""

import csv
import json

import numpy as np
import pytest

import devices
from devices import write_pictures
from latte.edge.classify.classify import create_alone
from latte.encoders import load_encoder, open_picture, zero_shot
from waiting import latte

pytest.importorskip("onnxruntime")
COMMON = ("--encoder", devices.ENCODER, "--classes", devices.CLASSES)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("in"), 60)


def answers(*words):
    done = latte("classify", *COMMON, "--json", *words, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def write_labels(path, labels):
    path.write_text("".join(f"{file},{label}\n" for file, label in labels.items()))
    return path


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_labels_are_learnt_after_the_answer_as_the_method_does_it(method, pictures, tmp_path):
    names = devices.CLASSES.split(",")
    labels = {path: names[i % 3] for i, path in enumerate(pictures[:20])}
    table = write_labels(tmp_path / "labels.csv", labels)
    memory = ("--memory", tmp_path / "memory")
    taught, said = answers("--method", method, "--labels", table, *memory, *pictures[:30])
    later, _ = answers("--method", method, "--labels", table, *memory, *pictures[30:])  # the memory has the labels
    plain, _ = answers("--method", method, *pictures)
    encoder = load_encoder(devices.ENCODER)
    task = zero_shot(encoder, names)
    alone = create_alone(method, task)
    rows = encoder.images([encoder.preprocess(open_picture(path)) for path in pictures])
    expected = []
    for path, row in zip(pictures, rows, strict=True):
        prediction = alone.predict(row[None])
        expected.append((prediction.classname, prediction.probability))
        if path in labels:
            alone.correct(row, names.index(labels[path]), prediction.learnt)
    assert [one["label"] for one in taught + later] == [label for label, _ in expected]
    got = [one["probability"] for one in taught + later]
    np.testing.assert_allclose(got, [probability for _, probability in expected], rtol=1e-3)
    assert taught[0] == plain[0] and any(a["label"] != b["label"] for a, b in zip(taught + later, plain, strict=True))
    assert "20 labelled images: accuracy" in said and "adapting: not known yet: about" in said


def test_a_machine_that_is_harmed_answers_with_zero_shot_unless_told_otherwise(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr("latte.core.evidence.ENOUGH", 4.0)  # four labels prove it: few pictures are enough
    own = ("--method", "tda", *pictures)  # it cannot be taught, so the labels do not mend it
    plain, _ = answers(*own)
    table = write_labels(tmp_path / "labels.csv", {one["file"]: one["zero_shot"] for one in plain})
    safe, said = answers(*own, "--labels", table)
    stubborn, also_said = answers(*own, "--labels", table, "--no-fallback")
    assert "hurts: predictions fall back to zero-shot" in said and "hurts, no fallback" in also_said
    start = next(i for i, one in enumerate(safe) if "adapted" in one)
    assert all(one["label"] == one["zero_shot"] for one in safe[start:])
    assert [one.get("adapted", one["label"]) for one in safe] == [one["label"] for one in stubborn]
    assert stubborn == plain and any(one["label"] != one["zero_shot"] for one in plain[start:])


def test_about_the_share_that_was_asked_for_is_flagged_and_nothing_else_changes(pictures, tmp_path):
    plain, _ = answers(*pictures)
    flagged, said = answers("--flag", "0.2", "--out", tmp_path / "table.csv", *pictures)
    assert not any("unlike" in one for one in plain)
    assert [{key: one[key] for key in plain[0]} for one in flagged] == plain
    with (tmp_path / "table.csv").open(newline="") as file:
        assert [row["unlike"] == "yes" for row in csv.DictReader(file)] == [one["unlike"] for one in flagged]
    assert not any(one["unlike"] for one in flagged[:49]), "too few to say what is usual"
    lowest = np.quantile([one["mcm"] for one in flagged], 0.2)
    assert all(one["unlike"] == (one["mcm"] < lowest) for one in flagged[50:] if abs(one["mcm"] - lowest) > 0.02)
    assert f"{sum(one['unlike'] for one in flagged)} pictures flagged, 20 % of all were asked for" in said.replace(
        "1 picture flagged", "1 pictures flagged"
    )
    text = latte("classify", *COMMON, "--flag", "0.2", *pictures, check=True).stdout
    assert text.count("unlike the known classes") == sum(one["unlike"] for one in flagged)
