"""The screen of `find-similar`: a headline, how the fdr is known, and a row for each neighbour."""

import pytest

from deltadex.questions.failures import show_failures
from deltadex.questions.find_similar import show_neighbours
from deltadex.questions.ls import show_models
from deltadex.questions.terminal.evidence import rate
from deltadex.questions.terminal.sections import show_answer

LABELLED = {
    "source": "labelled models of the family", "datasets": 5, "queries": 31, "verdict_from": 0.72
}  # fmt: skip
UNLABELLED = {"source": "the null alone", "models": 7, "models_needed": 12}
NOTHING = "no model stands out"


def neighbour(rank, verdict, *, z=2.0, fdr=0.5, dataset="imdb", probability=0.971):
    return {
        "rank": rank, "model": f"lab/m{rank}", "verdict": verdict, "z": z, "fdr": fdr,
        "probability": probability, "score": 0.4, "cosine": 0.25, "dataset": dataset,
        "author": "lab", "run": None, "base": "b",
    }  # fmt: skip


def lines(capsys, neighbours, *, compared=30, calibration=LABELLED, suspects=()):
    show_answer(
        show_neighbours(
            {
                "query": {"model": "a-0", "dataset": "imdb", "base": "b"},
                "recipe": "sketch",
                "compared": compared,
                "calibration": calibration,
                "neighbours": neighbours,
                "suspects": suspects,
            }
        )
    )
    return capsys.readouterr().out.splitlines()


def test_a_row_says_how_strong_the_evidence_is(capsys):
    first, headline, calibrated, heads, row, *rest = lines(
        capsys, [neighbour(1, "likely the same data", z=9.31, fdr=0.0012), neighbour(2, NOTHING)]
    )

    assert first == "nearest to a-0 (imdb) · recipe sketch"
    assert headline == "likely the same data: 1 model, of 30 compared"
    known = "probability from 31 labelled models, 5 datasets, a verdict needs 0.72"
    assert calibrated == f"{known}; fdr: of all answers up to here"
    assert heads.split() == [
        *("rank", "model", "verdict", "probability", "z", "fdr", "cosine", "dataset", "author")
    ]
    assert row.split("  ")[0].strip() == "1"
    assert [cell.strip() for cell in row.split("  ") if cell.strip()] == [
        "1", "lab/m1", "likely the same data", "0.97", "9.3", "0.2 %", "0.250", "imdb",
        "lab"]  # fmt: skip
    assert NOTHING not in "".join(rest)
    assert "lab/m2" in rest[0]


@pytest.mark.parametrize(
    ("verdicts", "compared", "headline"),
    [
        ([NOTHING] * 3, 30, "too few models to tell: no verdict among 30 compared"),
        (["copy", "perhaps", NOTHING], 30, "copy: 1 model, perhaps: 1 model, of 30 compared"),
        (
            *(["likely the same data", "perhaps", "perhaps"], 30),
            "likely the same data: 1 model, perhaps: 2 or more models, of 30 compared",
        ),
        ([], 0, "no other model passes the filters"),
    ],
)
def test_the_headline_counts_verdicts(capsys, verdicts, compared, headline):
    neighbours = [neighbour(rank, verdict) for rank, verdict in enumerate(verdicts, start=1)]

    shown = lines(capsys, neighbours, compared=compared, calibration=UNLABELLED)

    assert shown[1] == headline
    if verdicts:
        known = "no probability: 7 models are too few, 12 are needed"
        assert shown[2].startswith(f"{known}; of so few more are wrong than fdr says; fdr")
    else:
        assert len(shown) == 2


def test_a_verdict_by_a_gap_alone_is_said_with_the_gap(capsys):
    near = [
        neighbour(1, "perhaps", z=11.4, probability=0.5),
        neighbour(2, "perhaps", z=10.9, probability=0.4),
        neighbour(3, NOTHING, z=2.6, probability=0.1),
    ]

    _, headline, calibrated, *_ = lines(capsys, near, compared=40)

    assert headline == "perhaps: 2 models, of 40 compared"
    gap = "a verdict needs 0.72 or a clear gap below (z 10.9, then 2.6)"
    assert calibrated.endswith(f"{gap}; fdr: of all answers up to here")


def test_an_order_that_is_not_that_of_the_probabilities_is_named(capsys):
    near = [neighbour(n, NOTHING, z=4.0 - n, probability=p) for n, p in ((1, 0.0), (2, 0.3))]

    assert "; ordered by z, not by probability; fdr: of" in lines(capsys, near)[2]


def test_failures_say_a_code_an_id_and_a_reason_once():
    def model(id, base_raw, reason):
        return {"model": id, "base": "roberta-base", "base_raw": base_raw, "reason": reason}

    shared = {"code": "no-update", "status": "no-update", "meaning": "equals the base's"}
    other = {"code": "truncated", "status": "failed", "meaning": "ends early"}
    groups = [
        shared | {"models": [model("a/x", "klue/roberta-base", "equals the base's")]},
        other | {"models": [model("a/y", "roberta-base", "w.safetensors: short")]},
    ]

    assert list(show_failures({"failures": groups})) == [
        "no-update: equals the base's · 1",
        "  a/x: names klue/roberta-base",
        "truncated (failed): ends early · 1",
        "  a/y: w.safetensors: short",
    ]


def test_ls_has_a_column_of_bases_that_adapters_name_by_another_name():
    model = dict.fromkeys(("status", "code", "dataset", "author", "run"), None)
    model |= {"model": "m", "status": "indexed", "kind": "adapter", "base": "roberta-base"}

    named, plain = (
        next(show_models({"models": [model | {"base_raw": base}]}, counts_rest=True))
        for base in ("klue/roberta-base", "roberta-base")
    )

    assert named.columns[-1] == "base_raw"
    assert named.rows[0][-1] == "klue/roberta-base"
    assert "base_raw" not in plain.columns


@pytest.mark.parametrize(
    ("fdr", "text"),
    [
        *((0.0, "<0.1 %"), (0.00099, "<0.1 %"), (0.001, "0.1 %"), (0.05, "5.0 %")),
        *((0.0501, "5.1 %"), (0.0994, "10 %"), (0.316, "32 %")),
    ],
)
def test_rates_are_percents(fdr, text):
    assert rate(fdr) == text
