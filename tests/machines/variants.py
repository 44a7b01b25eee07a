"""Other processors, as far as this one can play them: environments in which numbers differ."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from numpy._core._multiarray_umath import __cpu_features__ as NUMPY_FEATURES

SAME_EXAMPLES = "--hypothesis-profile=ci"
"""For pytest: a difference is the processor's, and not that of other examples."""

PROBE = (
    "import faiss, numpy, scipy.linalg, sklearn, torch; numpy.linalg.qr(numpy.ones((1000, 1000)))"
)
"""What must run; a processor without the instructions ends with SIGILL, and OpenBLAS 0.3.34 with
SIGSEGV where a Zen 4 is to be a Haswell (its issue 6021; NumPy 2.5.2 to 2.5.5 have it). In one
thread, which then has all of the product."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A processor, by the environment variables that make the libraries compute as on it.

    Attributes:
        without: Features that NumPy's dispatcher finds here and is to do without.
        settings: What other libraries read.
        needs: Features that NumPy's dispatcher must find.
    """

    name: str
    without: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def environment(self):
        """This process's environment, changed."""
        disabled = {"NPY_DISABLE_CPU_FEATURES": " ".join(self.without)} if self.without else {}
        return {**os.environ, **disabled, **dict(self.settings)}

    def why_not(self):
        """Why this processor cannot play it; empty where it can."""
        wanted = (*self.without, *self.needs)
        absent = [feature for feature in wanted if not NUMPY_FEATURES.get(feature)]
        if absent:
            return f"NumPy finds no {' and no '.join(absent)} here"
        environment = {**self.environment, **dict(_threads(1))}
        probed = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True)
        return f"the libraries do not run: exit {probed.returncode}" if probed.returncode else ""


def _threads(n):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return tuple((name, str(n)) for name in names)


FAISS_GENERIC = (("FAISS_OPT_LEVEL", "generic"), ("FAISS_SIMD_LEVEL", "NONE"))
"""Builds of faiss with one library for each processor, and those with one for all."""

VARIANTS = (
    Variant("this processor"),
    Variant("numpy without AVX-512", ("X86_V4",)),
    Variant("numpy without AVX-512 and AVX2", ("X86_V3", "X86_V4")),
    Variant("OpenBLAS for Haswell", settings=(("OPENBLAS_CORETYPE", "Haswell"),)),
    Variant("OpenBLAS for SkylakeX", settings=(("OPENBLAS_CORETYPE", "SkylakeX"),)),
    Variant("OpenBLAS for Zen", settings=(("OPENBLAS_CORETYPE", "Zen"),)),
    Variant("torch without vectors", settings=(("ATEN_CPU_CAPABILITY", "default"),)),
    Variant("MKL as on any processor", settings=(("MKL_CBWR", "COMPATIBLE"),)),
    Variant("faiss without vectors", settings=FAISS_GENERIC),
    Variant("one thread", settings=_threads(1)),
    Variant("two threads", settings=_threads(2)),
)

AVX512 = Variant("all as here, with AVX-512", needs=("X86_V4",))
HASWELL = Variant(
    "all as on Haswell",
    ("X86_V4",),
    (("OPENBLAS_CORETYPE", "Haswell"), ("ATEN_CPU_CAPABILITY", "avx2"), ("MKL_CBWR", "AVX2")),
)
OLDEST = Variant(
    "all as on the oldest",
    ("X86_V3", "X86_V4"),
    (
        ("OPENBLAS_CORETYPE", "Nehalem"),
        ("ATEN_CPU_CAPABILITY", "default"),
        ("MKL_CBWR", "COMPATIBLE"),
        *FAISS_GENERIC,
    ),
)

NUMERIC = (
    *(f"tests/{room}" for room in ("adapter", "fingerprint", "indexer", "search", "study")),
    *(f"tests/store/test_{name}.py" for name in ("search_index", "shortlist", "sketch_file")),
    *(f"tests/machines/test_{name}.py" for name in ("processors", "threads")),
)
"""Tests whose results come from floating-point sums."""

CUT = (
    "tests/fingerprint",
    "tests/machines/test_processors.py",
    *(f"tests/search/test_{of}.py" for of in ("clusters", "hierarchy", "precision", "suggestions")),
    *(f"tests/study/test_{of}.py" for of in ("anisotropy", "effective_rank")),
)
"""Those of them that are run under two variants by `make test`."""
