"""The paper's numbers, and the rule that keeps them away from other models."""

import csv
import itertools

import pytest

from latte.report.published import (
    BACKBONES,
    BENCHMARKS,
    METHOD_TITLES,
    SAMPLES,
    accuracies,
    backbone_of,
    canonical,
    comparable,
    published_accuracy,
)


def test_all_of_the_papers_accuracies_are_there(shared):
    with (shared / "paper" / "accuracy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(accuracies()) == 900
    short = {name: key for key, name in BENCHMARKS.items()}, {name: key for key, name in METHOD_TITLES.items()}
    for row in rows:
        found = published_accuracy(short[0][row["dataset"]], row["backbone"], short[1][row["method"]], row["domain"])
        assert found is not None
        assert f"{found.mean:g}" == f"{float(row['accuracy_mean']):g}"
        assert found.sd == (float(row["accuracy_sd"]) if row["accuracy_sd"] else None)


def test_every_method_has_a_total_on_every_benchmark():
    for benchmark, backbone, method in itertools.product(BENCHMARKS, BACKBONES, METHOD_TITLES):
        assert published_accuracy(benchmark, backbone, method) is not None


def test_some_totals_of_the_main_table():
    assert published_accuracy("terra", "ViT-B/16", "latte").mean == 40.95
    assert published_accuracy("terra", "ViT-B/16", "latte").sd == 1.06
    assert published_accuracy("TerraIncognita", "RN50", "clip").mean == 23.24
    assert published_accuracy("vlcs", "ViT-B/16", "latte+variant=released").mean == 82.57


def test_what_the_paper_does_not_have():
    assert published_accuracy("pacs", "RN50", "clip") is None
    assert published_accuracy("vlcs", "RN50", "mine") is None
    assert published_accuracy("vlcs", "RN50", "clip", "Moon") is None
    with pytest.raises(ValueError, match="backbone"):
        published_accuracy("vlcs", "ViT-L/14", "clip")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("vlcs", "vlcs"),
        ("VLCS", "vlcs"),
        ("vlcs-vit-b-16", "vlcs"),
        ("vlcs-rn50-views64", "vlcs"),
        ("terra_incognita", "terra"),
        ("CIFAR-100-C", "cifar100c"),
        ("cifar10c-mini", None),
        ("cifar100c_test", None),
        ("views_cifar10c", None),
        ("pacs", None),
        ("", None),
    ],
)
def test_benchmark_names(name, short):
    assert canonical(name) == short


@pytest.mark.parametrize(
    ("encoder", "backbone"),
    [
        ("hf:openai/clip-vit-base-patch16", "ViT-B/16"),
        ("openai/clip-vit-base-patch16", "ViT-B/16"),
        ("openclip:ViT-B-16/openai", "ViT-B/16"),
        ("OpenAI CLIP ViT-B/16", "ViT-B/16"),
        ("openclip:RN50/openai", "RN50"),
        ("CLIP RN50", "RN50"),
        ("OpenAI CLIP ViT-B/32", None),
        ("openclip:ViT-B-16/laion2b_s34b_b88k", None),
        ("openclip:RN50x4/openai", None),
        ("ViT-B/16", None),
        ("mini-VLM", None),
        ("hf:google/siglip-base-patch16-224", None),
    ],
)
def test_encoder_names(encoder, backbone):
    assert backbone_of(encoder) == backbone


def test_published_numbers_never_stand_beside_another_model():
    assert comparable("cifar10c", "mini-VLM") is None
    assert comparable("cifar10c", "openclip:ViT-B-16/openai") == "ViT-B/16"
    assert comparable("pacs", "openclip:ViT-B-16/openai") is None
    assert comparable("cifar10c", None) is None


def test_a_claim_helps_only_where_the_data_is_silent():
    assert comparable("vlcs", None, "RN50") == "RN50"
    assert comparable("vlcs", "CLIP RN50", "RN50") == "RN50"
    for encoder in ("mini-VLM", "CLIP ViT-B/16"):
        with pytest.raises(ValueError, match="--backbone"):
            comparable("vlcs", encoder, "RN50")


def test_sizes_are_the_papers():
    assert SAMPLES == {"vlcs": 10729, "terra": 24788, "cifar10c": 60000, "cifar100c": 60000}
