"""What type checkers say of the public API: every line is checked by mypy and by pyright, and none is run.

``python tools/check_examples.py`` reads it. An ignored line is a mistake that both of them have to find.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import latte
from latte import Answer, Latte, Prediction, Ristretto, Tda, ZeroShot
from latte.methods import LatteParams, PtaFedParams, RistrettoParams

Labels = NDArray[np.str_]
Numbers = NDArray[np.float64]


def embed(pictures: list[Any]) -> Numbers:
    return np.zeros((len(pictures), 8))


def methods(zero_shot: ZeroShot, name: str) -> None:
    client = Latte(zero_shot, alpha=3.0, k_l=4, preset="vlcs")
    assert_type(client.params, LatteParams)
    assert_type(client.predict([0.6, 0.8]), Prediction)
    Latte(zero_shot, alhpa=3)  # type: ignore[call-arg]
    Latte(zero_shot, alpha="three")  # type: ignore[arg-type]
    Latte(zero_shot, RistrettoParams())  # type: ignore[arg-type]
    Latte(zero_shot, {"alpha": 3})
    latte.PtaFed(zero_shot, PtaFedParams(weights="near"), weights="all", tau=3.0)
    latte.OgaFed(zero_shot, mean="count")
    latte.Clip(zero_shot, normalise=True)
    latte.Clip(zero_shot, alpha=1)  # type: ignore[call-arg]

    assert_type(latte.create("latte", zero_shot, alpha=3.0), Latte)
    assert_type(latte.create("ristretto", zero_shot), Ristretto)
    assert_type(latte.create("tda-global", zero_shot, k=4), Tda)
    assert_type(latte.create("vte", zero_shot), latte.Vte)
    assert_type(latte.create("dota-fed", zero_shot), latte.DotaFed)
    assert_type(latte.create(name, zero_shot, {"anything": 1}), latte.CreatedMethod)
    latte.create("ristretto", zero_shot, alhpa=3)  # type: ignore[call-overload]

    exchange = latte.create_exchange("ristretto", zero_shot)
    latte.sync([("camera 7", latte.create("ristretto", zero_shot))], exchange)
    latte.sync([("camera 7", latte.create("clip", zero_shot))], exchange)  # type: ignore[list-item]


def pictures(classifier: latte.Classifier, picture: Image.Image, frame: NDArray[np.uint8]) -> None:
    latte.Classifier(["cat", "dog"], encoder=embed, text=np.eye(2, 8))
    latte.Classifier(["cat", "dog"], encoder=latte.load_encoder("onnx:model"), method="ristretto")
    latte.Classifier(["cat", "dog"])  # type: ignore[call-arg]
    latte.Classifier(["cat", "dog"], encoder=7)  # type: ignore[arg-type]
    assert_type(classifier.predict("cat.jpg"), str)
    assert_type(classifier.predict(Path("cat.jpg")), str)
    assert_type(classifier.predict(picture), str)
    assert_type(classifier.predict(["cat.jpg", "dog.jpg"]), Labels)
    assert_type(classifier.predict([picture, picture]), Labels)
    assert_type(classifier.predict([frame]), Labels)
    assert_type(classifier.predict(frame), Any)  # (H, W, 3) or (n, H, W, 3): types do not say
    assert_type(classifier.predict_proba([frame]), Numbers)
    assert_type(classifier(picture)[0]["score"], float)
    assert_type(classifier([picture])[0][0]["label"], str)
    assert_type(classifier.classify("photos"), Iterator[Answer])
    assert_type(classifier.load("memory"), latte.Classifier)
    classifier.predict(3)  # type: ignore[call-overload]
    classifier.predict_proba([3])  # type: ignore[list-item]
    latte.load_encoder("onnx:model").images([3])  # type: ignore[list-item]


def device(frame: NDArray[np.uint8]) -> None:
    with latte.Device("http://127.0.0.1:8420", encoder=embed, name="camera-7", state=Path("state")) as device:
        assert_type(device, latte.Device)
        assert_type(device.watch("photos"), Iterator[Answer])
        assert_type(device.frames(latte.LatestFrames([frame])), Iterator[Answer])
        assert_type(device.answer(frame).label, str | None)
        assert_type(device.status.name, str)
        assert_type(device.task.zero_shot, ZeroShot)
        device.frames([3])  # type: ignore[list-item]
    with latte.HttpExchange("http://127.0.0.1:8420") as exchange:
        assert_type(exchange, latte.HttpExchange)
        latte.sync([("camera 8", latte.new_member(exchange.shared_task))], exchange)
