from deltadex.provenance.lineage.claims import read_claims

BASE = "owner/base-model"


def claims_of(named, parents=(), equal=()):
    shown = {model: [BASE] for model in named} | dict(parents)
    return {row["model"]: row for row in read_claims(BASE, named, shown, dict(equal))}


def test_a_card_is_compared_with_the_weights():
    named = dict(a=BASE, b="/nets/base_model", c="x/a", d="a", e=None, f="f", g="?")
    rows = claims_of(named, {"b": ["a"], "c": ["a"], "d": ["c"]})

    says = {model: row["says"] for model, row in rows.items()}
    assert says == dict(a="agrees", b="base", c="agrees", d="other", f="itself", g="outside")
    assert rows["b"]["note"] == "card says base; weights say fine-tune of a"


def test_a_card_that_names_a_copy_of_the_parent_agrees():
    rows = claims_of(
        {"child": "copy", "copy": None, "first": None}, {"child": ["first"]}, {"copy": "first"}
    )

    assert rows["child"]["says"] == "agrees"


def test_the_card_of_a_copy_may_name_the_parent_of_its_original():
    rows = claims_of(
        {"copy": BASE, "again": "other", "first": None, "other": None},
        {"copy": ["first"], "again": ["copy"]},
        {"copy": "first", "again": "copy"},
    )

    assert {id: row["says"] for id, row in rows.items()} == {"copy": "agrees", "again": "other"}
