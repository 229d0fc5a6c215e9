"""What the README shows of measurements is what its programs write."""

from waiting import ROOT


def test_the_tables_are_what_the_script_writes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_readme as script

    pages = (script.README, script.RISTRETTO, script.CALIBRATION)
    readme, ristretto, calibration = (path.read_text(encoding="utf-8") for path in pages)
    assert script.filled(readme, "results", script.results_table()) == readme, "run: python tools/make_readme.py"
    assert script.filled(ristretto, "same syncs", script.ristretto_table()) == ristretto
    assert script.filled(calibration, "calibration", script.calibration_table()) == calibration


def test_the_results_have_every_set_and_the_losses(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_readme as script

    measured = {path.stem for path in script.RESULTS.glob("*.json") if not path.stem.endswith(".manifest")}
    assert measured == set(script.SETS)
    assert "▼" in script.results_table() and "SUN397" in script.results_table()


def test_gains_and_losses_are_counted_by_the_wider_interval(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_readme as script

    pair = {"mean": -1.0, "low": -1.7, "high": -0.3, "image_low": None, "image_high": None}
    assert script.shown(pair).endswith("▼")
    assert "▼" not in script.shown(pair | {"image_low": -2.3, "image_high": 0.4})
    measured = [script.Measured(name).gain(label) for name in script.SETS for label in ("Latte", "Ristretto")]
    assert all(pair["seeds"] == 10 and pair["image_low"] is not None for pair in measured)
    assert all(pair["image_low"] <= pair["low"] and pair["high"] <= pair["image_high"] for pair in measured)
