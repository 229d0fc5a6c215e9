"""The reference pages name everything that the code has: every key, every default, every kind of file."""

import json
import re
from dataclasses import MISSING, Field, fields

import pytest

from latte.encoders.onnx import Description, ImagePart, TextPart, image_rule, read_model_json
from latte.experiment.config import MethodConfig, RunConfig
from latte.simulation.labelling import Labelling
from latte.simulation.simulator import Schedule
from latte.wire.task import TaskDescription
from waiting import ROOT

# defaults that are no values
OWN_WORDS = {"schedule": "all defaults", "labels": "all defaults", "label": "the name", "setting": "derived"}


def rows(page: str, marker: str) -> dict[str, list[str]]:
    """Return the table below a marker, by its first column, without the head; a row of several keys counts for each."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text.partition(f"<!-- {marker} -->\n")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {key: rest for first, *rest in cells for key in re.findall(r"`([^`]+)`", first)}


def default(field: Field) -> str:
    """Return a default as the page writes it."""
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    if field.name in OWN_WORDS:
        return OWN_WORDS[field.name]
    if value is MISSING:
        return "required"
    return "none" if value is None else f"`{json.dumps(value)}`"


@pytest.mark.parametrize("kind", [RunConfig, MethodConfig, Schedule, Labelling])
def test_every_key_of_the_configuration_is_there_with_its_default(kind):
    documented = rows("files.md", kind.__name__)
    assert list(documented) == [field.name for field in fields(kind)]
    assert {key: cells[1] for key, cells in documented.items()} == {
        field.name: default(field) for field in fields(kind)
    }


def test_the_model_json_of_the_page_is_one_and_every_key_is_named(tmp_path):
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    section = text.partition("## The model folder\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    for name in ("model.json", "image.onnx", "text.onnx", "tokenizer.json"):
        (tmp_path / name).write_text(code, encoding="utf-8")
    assert image_rule(read_model_json(tmp_path).image).size == (224, 224)
    names = {field.name for kind in (Description, ImagePart, TextPart) for field in fields(kind)}
    assert [name for name in sorted(names) if not re.search(rf'[`"]{name}[`"]', section)] == []


def test_every_member_of_a_task_is_there():
    assert set(rows("files.md", "TaskDescription")) == {field.name for field in fields(TaskDescription)}


def test_every_kind_of_file_is_there():
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    formats = set(re.findall(r'"(latte-[a-z]+/\d+)"', code))
    names = set(re.findall(r'"([a-z]+\.(?:db|jsonl|json|txt|safetensors))"', code))
    assert len(formats) >= 9 and {"device.db", "clients.db", "config.json"} <= names
    assert [one for one in sorted(formats | names) if f"{one}`" not in page] == []


def test_every_environment_variable_is_there():
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r'(?:envvar=|environ\.get\(|environ\[)"(LATTE_[A-Z]+)"', code))
    assert used and [name for name in sorted(used) if f"`{name}`" not in page] == []
