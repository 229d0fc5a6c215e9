"""Tables against numbers computed by hand and by numpy."""

import dataclasses

import numpy as np
import pytest

from latte.cli.experiments import summarise
from latte.report.formats.markup import render
from latte.report.page.charts import look
from latte.report.page.sections import table_section
from latte.report.tables import build_table, group
from latte.simulation.results import ClientScore, Result
from report.fake import DOMAINS, GAINS, fake_results


def result(method, seed, correct, setting="preset", params=None, benchmark="vlcs"):
    """Two clients of 10 and 30 samples in domains A and B."""
    clients = (ClientScore("a", "A", 10, correct[0]), ClientScore("b", "B", 30, correct[1]))
    return Result(benchmark, method, params or {}, setting, seed, clients)


SMALL = [
    result("latte", 0, (8, 24)),
    result("latte", 1, (9, 21)),
    result("clip", 0, (5, 15)),
    result("clip", 1, (5, 18)),
]


def cells(table, label):
    row = next(row for row in table.rows if row.label == label)
    return {column.key: cell for column, cell in zip(table.columns, row.cells, strict=True)}


def test_by_hand():
    table = build_table(SMALL)
    latte = cells(table, "Latte")
    # totals 32/40 = 80 and 30/40 = 75; macro (80 + 80)/2 and (90 + 70)/2; CLIP 20/40 = 50 and 23/40 = 57.5
    assert (latte["micro"].mean, latte["micro"].sd) == (77.5, pytest.approx(np.sqrt(12.5)))
    assert (latte["macro"].mean, latte["macro"].sd) == (80.0, 0.0)
    assert (latte["gain"].mean, latte["gain"].sd) == (23.75, pytest.approx(np.std([30, 17.5], ddof=1)))
    assert latte["domain:A"].mean == 85.0
    assert latte["domain:B"].mean == pytest.approx(75.0)
    assert cells(table, "CLIP")["gain"] is None
    assert [row.label for row in table.rows] == ["CLIP", "Latte"]
    assert "paper" not in latte


def test_calibration_is_a_column_where_records_have_it():
    assert "ece" not in cells(build_table(SMALL), "Latte")
    measured = [dataclasses.replace(SMALL[0], calibration_error=0.125), *SMALL[1:]]
    table = build_table(measured)
    assert cells(table, "Latte")["ece"].mean == 12.5 and cells(table, "CLIP")["ece"] is None
    assert [row["ece"] for row in summarise(measured)] == [12.5, None] and "ece" not in summarise(SMALL)[0]
    assert cells(build_table([*SMALL, measured[0]]), "Latte")["ece"].mean == 12.5  # run twice, measured once
    assert table.best([column.key for column in table.columns].index("ece")) is None  # less is better


def test_paired_difference_by_hand():
    (pair,) = build_table(SMALL).against_reference()
    assert (pair.first, pair.second, pair.mean, pair.seeds) == ("Latte", "CLIP", 23.75, 2)
    half = 12.706204736174694 * np.std([30, 17.5], ddof=1) / np.sqrt(2)
    assert pair.high == pytest.approx(23.75 + half)


def test_paper_columns_where_the_encoder_is_the_papers():
    table = build_table(SMALL, "CLIP ViT-B/16")
    latte = cells(table, "Latte")
    assert (latte["paper"].mean, latte["paper"].sd) == (82.57, 0.12)
    assert latte["difference"].mean == pytest.approx(77.5 - 82.57)
    assert "The paper has 10,729 samples; these results have 40." in table.notes
    assert build_table(SMALL, "mini-VLM").backbone is None


def test_a_large_table_against_numpy():
    results = fake_results()
    table = build_table(results, "CLIP ViT-B/16")
    assert [row.method for row in table.rows] == list(GAINS)
    domains = table.panel("domains")
    assert [table.columns[i].label for i in domains] == list(DOMAINS)
    for row in table.rows:
        mine = [one for one in results if one.method == row.method]
        correct = np.array([[client.correct for client in one.clients] for one in mine])
        samples = np.array([[client.samples for client in one.clients] for one in mine])
        micro = 100 * correct.sum(1) / samples.sum(1)
        assert row.cells[0].mean == pytest.approx(micro.mean())
        assert row.cells[0].sd == pytest.approx(micro.std(ddof=1))
        assert row.cells[1].mean == pytest.approx((100 * correct / samples).mean())
        domain = 100 * correct.reshape(5, 19, 2).sum(2) / samples.reshape(5, 19, 2).sum(2)
        assert [row.cells[i].mean for i in domains] == pytest.approx(domain.mean(0))
        assert [row.cells[i].sd for i in domains] == pytest.approx(domain.std(0, ddof=1))
    assert len(table.differences) == 9 * 8 * 3  # of the total, the worst client and the worst domain


def test_methods_come_in_the_papers_order_whatever_order_they_ran_in():
    results = fake_results(seeds=2)
    rng = np.random.default_rng(0)
    shuffled = [results[i] for i in rng.permutation(len(results))]
    assert build_table(shuffled).rows == build_table(results).rows


def test_rows_of_one_method_say_what_distinguishes_them():
    results = [
        result("latte", 0, (8, 20), params={"alpha": 1.0, "k_l": 5}),
        result("latte", 0, (8, 21), setting="tuned", params={"alpha": 0.5, "k_l": 5}),
        result("latte+variant=released", 0, (8, 22), params={"alpha": 1.0, "k_l": 5}),
        result("mine", 0, (1, 1)),
    ]
    labels = [row.label for row in build_table(results).rows]
    assert labels == ["Latte [preset, alpha=1.0]", "Latte [tuned, alpha=0.5]", "Latte [variant=released]", "mine"]


def test_the_same_result_from_two_runs_counts_once():
    assert len(group(SMALL + SMALL)) == 2
    assert build_table(SMALL + SMALL) == build_table(SMALL)


def test_two_scores_for_one_seed_are_refused():
    with pytest.raises(ValueError, match="latte, seed 0 twice with different scores"):
        build_table([*SMALL, result("latte", 0, (1, 1))])


def test_one_seed_says_so():
    table = build_table([one for one in SMALL if one.seed == 0])
    assert table.notes[0].startswith("One seed")
    assert cells(table, "Latte")["micro"].sd is None
    (pair,) = table.against_reference()
    assert pair.low is None


def test_different_seeds_say_so():
    table = build_table(SMALL[:3])
    assert "do not all have the same seeds" in table.notes[0]
    assert cells(table, "Latte")["gain"].mean == 30.0  # seed 0 only


def test_no_clip_no_gain():
    assert "gain" not in cells(build_table(SMALL[:2]), "Latte")


def test_a_domain_that_a_row_does_not_have_is_empty():
    other = dataclasses.replace(SMALL[2], clients=(ClientScore("c", "C", 4, 2),))
    table = build_table([SMALL[0], other])
    assert cells(table, "CLIP")["domain:A"] is None
    assert cells(table, "Latte")["domain:C"] is None
    assert cells(table, "CLIP")["domain:C"].mean == 50.0


def test_an_oracle_is_never_the_best():
    table = build_table([*SMALL, result("tda", 0, (10, 30), setting="oracle")])
    assert table.best(0) == 77.5


def test_a_loss_is_never_the_best_gain():
    place = [column.key for column in build_table(SMALL).columns].index("gain")
    assert build_table(SMALL).best(place) == 23.75
    worse = [dataclasses.replace(one, method={"latte": "clip", "clip": "latte"}[one.method]) for one in SMALL]
    assert build_table(worse).best(place) is None


def test_what_is_shown_as_the_same_number_is_the_best_alike():
    """Means over other seeds differ in the last bit: 18.333333333333332 and 18.333333333333336."""
    table = build_table([*SMALL, *(dataclasses.replace(one, method="tda") for one in SMALL[:2])])
    row = next(row for row in table.rows if row.method == "tda")
    nearly = dataclasses.replace(row, cells=(dataclasses.replace(row.cells[0], mean=77.5 - 1e-13), *row.cells[1:]))
    table = dataclasses.replace(table, rows=tuple(nearly if one is row else one for one in table.rows))
    assert [one.method for one in table.rows if table.is_best(one, 0)] == ["tda", "latte"]
    assert render([table], "markdown").count("**77.50") == 2 and table_section(table).body.count('accuracy best"') > 2


def test_the_summary_of_a_command_is_that_of_the_table():
    """The same groups, means and deviations; results with other parameters are a row of their own."""
    other = [dataclasses.replace(one, params={"alpha": 9.0}) for one in SMALL]
    rows = summarise(SMALL + other, T=5)
    table = build_table(SMALL + other)
    assert len(rows) == 2 * len(group(SMALL)) == len(table.rows)
    keys = ["benchmark", "T", "method", "setting", "seeds", "accuracy", "sd", "per_client", "kB/client"]
    assert list(rows[0]) == [*keys, "worst_client", "worst_domain", "first_quarter", "last_quarter"]
    assert list(summarise(SMALL, deployment=False, T=5)[0]) == keys
    totals = sorted((row.cells[0].mean, row.cells[0].sd, row.cells[1].mean) for row in table.rows)
    assert sorted((row["accuracy"], row["sd"], row["per_client"]) for row in rows) == totals


def test_bytes_stand_beside_accuracy_where_a_method_sends_some():
    assert "sent" not in [column.key for column in build_table(SMALL).columns]
    sending = [dataclasses.replace(one, sent=1500.0) if one.method == "latte" else one for one in SMALL]
    table = build_table(sending)
    (place,) = (i for i, column in enumerate(table.columns) if column.key == "sent")
    by_method = {row.method: row.cells[place] for row in table.rows}
    assert by_method["latte"].mean == 1.5 and by_method["clip"] is None and table.best(place) is None
    rows = {row["method"]: row["kB/client"] for row in summarise(sending)}
    assert rows == {"clip": None, "latte": 1.5}


def test_a_label_is_shown_and_the_method_decides():
    """`--methods clip=tda,latte=dmn,zs=clip`: a label that is the name of another method changes no comparison."""
    results = [
        result("clip", 0, (8, 24)),
        result("latte", 0, (9, 21)),
        result("zs", 0, (5, 15)),
    ]
    table = build_table(results, "CLIP ViT-B/16", names={"clip": "tda", "latte": "dmn", "zs": "clip"})
    assert [(row.label, row.name) for row in table.rows] == [("zs", "clip"), ("clip", "tda"), ("latte", "dmn")]
    assert cells(table, "zs")["gain"] is None and cells(table, "clip")["gain"].mean == 30.0
    assert cells(table, "zs")["paper"].mean == 80.83 and cells(table, "latte")["paper"].mean != 82.57
    assert "Labels: zs is CLIP, clip is TDA (local), latte is DMN-ZS (local)." in table.notes
    page = table_section(table).body
    assert look("tda").light in page and look("latte").light not in page


def test_the_reference_is_latte_by_name():
    results = [result("ours", 0, (8, 24)), result("latte+k_l=3", 0, (9, 21)), result("latte", 0, (5, 15))]
    names = {"ours": "latte", "latte+k_l=3": "latte", "latte": "tda"}
    assert build_table(results, names=names).reference == "ours"
    assert build_table(results).reference == "Latte"


def test_a_table_says_which_rows_are_approximate():
    results = [result("clip", 0, (5, 15)), result("ristretto", 0, (6, 16))]
    plain = build_table(results)
    assert not any("approximate" in note for note in plain.notes)
    results[1] = dataclasses.replace(results[1], approximation="more than 1,024 clients: a sample of 256")
    assert Result.from_json(results[1].to_json()) == results[1]
    notes = [note for note in build_table(results).notes if "approximate" in note]
    assert len(notes) == 1 and "more than 1,024 clients" in notes[0] and "approximation=off" in notes[0]
    clip, approximate = summarise(results)  # what latte run prints
    assert "approximate" not in clip and approximate["approximate"] == results[1].approximation
