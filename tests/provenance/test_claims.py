from deltadex.provenance.lineage.lineage import read_claims

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


def test_cards_may_name_copies_of_a_parent_and_those_of_copies_the_parent_of_their_original():
    rows = claims_of(
        {"child": "copy", "copy": BASE, "again": "other", "first": None, "other": None},
        {"child": ["first"], "copy": ["first"], "again": ["copy"]},
        {"copy": "first", "again": "copy"},
    )

    says = {model: row["says"] for model, row in rows.items()}
    assert says == {"child": "agrees", "copy": "agrees", "again": "other"}
