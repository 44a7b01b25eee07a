import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deltadex.search.trained_on import null_calibration, with_labels

RATES = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(sorted)
LABELS = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=12, max_size=12)


def test_a_label_that_the_nearer_models_do_not_share_raises_its_rate():
    rates = with_labels(np.full(5, 0.01), ["a", "a", "b", None, "a"])

    assert rates.tolist() == [0.01, 0.01, 1 - 1 / 3, 0.01, 1 - 3 / 4]


@given(RATES, LABELS)
def test_labels_only_raise_rates_and_never_the_first(rates, labels):
    raised = with_labels(np.array(rates), labels)

    assert (raised >= rates).all()
    assert (raised <= 1).all()
    assert raised[0] == rates[0]
    assert with_labels(np.array(rates), [None] * 12).tolist() == rates


def test_few_models_widen_the_tail():
    assert null_calibration(4).rate > null_calibration(400).rate
    assert null_calibration(4).source == "the null alone"
