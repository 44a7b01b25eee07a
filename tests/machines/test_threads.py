"""On one machine fingerprints, rankings and clusters do not depend on the number of threads."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from running import printed

ANSWERS = Path(__file__).parent / "answers.py"

IN_NEW_THREADS = """
from threadpoolctl import threadpool_info
from deltadex.indexer.job import single_torch_thread, ordered

def openmp_threads(_):
    return [pool["num_threads"] for pool in threadpool_info() if "torch" in pool["filepath"]]

with single_torch_thread():
    for threads in ordered(openmp_threads, range(8), 3):
        print(*threads)
"""


def run(*command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment.pop("OPENBLAS_NUM_THREADS", None)
    return printed(sys.executable, *command, env=environment)


SCORES = 1e-12
"""BLAS adds up long rows in as many parts as it has threads: scores differ in float64 rounding."""


@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits(tmp_path):
    for threads in (1, 3):
        run(str(ANSWERS), str(tmp_path / f"{threads}.npz"), threads=threads)

    with np.load(tmp_path / "1.npz") as one, np.load(tmp_path / "3.npz") as three:
        assert one.keys() == three.keys()
        for name, array in one.items():
            if name in ("scores", "ranked_scores", "evidence"):
                assert np.abs(array - three[name]).max() <= SCORES, name
            else:
                assert np.array_equal(array, three[name]), name


def test_a_new_thread_computes_alone_from_its_first_product_on():
    lines = run("-c", IN_NEW_THREADS, threads=3).splitlines()

    assert len(lines) == 8
    assert {*" ".join(lines).split()} == {"1"}
