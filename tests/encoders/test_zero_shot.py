"""Class names and templates to a classifier, and the refusals."""

import json

import numpy as np
import pytest

from latte.encoders import read_descriptions, read_templates, template_sets, zero_shot
from latte.encoders.prompts import check_templates

SEVEN = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)


class Words:
    """An encoder of texts whose rows are made of the prompt's letters."""

    name, dim, scale = "words", 64, 50.0

    def __init__(self):
        self.prompts = []

    def texts(self, texts, batch_size=32, progress=None):
        self.prompts += texts
        rows = np.array([[text.count(chr(code)) for code in range(64, 128)] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_seven_templates_with_their_full_stops():
    assert read_templates("seven") == SEVEN
    assert set(template_sets()) == {"photo", "seven"}


def test_the_mean_of_unit_rows_is_normalised():
    encoder = Words()
    classifier = zero_shot(encoder, ["polar_bear", "dog", "cat"])
    assert classifier.classnames == ("polar_bear", "dog", "cat") and classifier.scale == 50
    assert encoder.prompts[:2] == ["itap of a polar bear.", "a bad photo of the polar bear."]
    for row, name in zip(classifier.text, ("polar bear", "dog", "cat"), strict=True):
        mean = np.mean([Words().texts([template.format(name)])[0] for template in SEVEN], axis=0)
        assert np.allclose(row, mean / np.linalg.norm(mean), atol=1e-6)


SENTENCES = {"Polar Bear": ("A white bear.", "It swims."), "dog": ("Ein Hund bellt.",), "owl": ("Unused.",)}


@pytest.mark.parametrize("templates", [None, ["a photo of a {}.", "{}"]])
def test_descriptions_alone_and_beside_templates(templates):
    """Every prompt of a class counts alike, however many the class has."""
    encoder = Words()
    classifier = zero_shot(encoder, ["polar_bear", "dog"], templates, descriptions=SENTENCES)
    words = {"polar_bear": "polar bear", "dog": "dog"}
    sentences = {"polar_bear": SENTENCES["Polar Bear"], "dog": SENTENCES["dog"]}
    for row, name in zip(classifier.text, words, strict=True):
        prompts = [template.format(words[name]) for template in templates or []] + list(sentences[name])
        mean = np.mean([Words().texts([prompt])[0] for prompt in prompts], axis=0)
        assert np.allclose(row, mean / np.linalg.norm(mean), atol=1e-6)
    assert len(encoder.prompts) == 3 + 2 * len(templates or [])


def test_a_file_of_descriptions(tmp_path):
    path = tmp_path / "cupl.json"
    path.write_text(json.dumps(SENTENCES), encoding="utf-8")
    assert read_descriptions(path) == SENTENCES
    with pytest.raises(ValueError, match="descriptions: got none for cat, want every class; there is"):
        zero_shot(Words(), ["dog", "cat"], descriptions=read_descriptions(path))
    twice = {"dog": ["It barks."], "Dog": ["It growls."]}
    with pytest.raises(ValueError, match="descriptions: got 'dog' and 'Dog', the same words"):
        zero_shot(Words(), ["dog", "cat"], descriptions=twice)
    for bad in ("{}", "[]", '{"dog": []}', '{"dog": [" "]}', '{"dog": "a dog"}', "no json"):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(ValueError, match=r"cupl\.json"):
            read_descriptions(path)


def test_braces_in_a_class_name_are_just_letters():
    encoder = Words()
    zero_shot(encoder, ["{x}", "{}"], ["a {}."])
    assert encoder.prompts == ["a {x}.", "a {}."]


@pytest.mark.parametrize("names", [["dog", "dog"], ["polar_bear", "polar bear"], ["a", "b", " a"]])
def test_duplicate_names_are_refused(names):
    with pytest.raises(ValueError, match="classnames"):
        zero_shot(Words(), names)


@pytest.mark.parametrize("names", [[], ["dog"], "dog", ["dog", ""], ["dog", "_"], ["dog", 3]])
def test_odd_names_are_refused(names):
    with pytest.raises(ValueError, match="name"):
        zero_shot(Words(), names)


@pytest.mark.parametrize("templates", [[], "a {}.", ["a photo."], ["{} and {}"], ["a {}.", "a {}."], [None]])
def test_odd_templates_are_refused(templates):
    with pytest.raises(ValueError, match="template"):
        check_templates(templates)


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("\ufeff# mine\n\na blurry {}.\n  the {} at night  \n", encoding="utf-8")
    assert read_templates(path) == ("a blurry {}.", "the {} at night")
    assert read_templates(str(path)) == read_templates(path)


def test_bad_template_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="seven"):
        read_templates("sevn")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(ValueError, match="at least one"):
        read_templates(tmp_path / "empty.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match="UTF-8"):
        read_templates(tmp_path / "bytes.txt")


def test_a_class_name_that_does_not_fit_is_named(tiny):
    with pytest.raises(ValueError, match=r"polar polar .*shorten the class name"):
        zero_shot(tiny, ["dog", "polar " * 20])
