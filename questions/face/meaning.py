"""How an answer is read, in the words that programs and language models are told."""

from __future__ import annotations

HOW_TO_READ = """\
A `verdict` is "copy", "likely the same data", "perhaps" or "no model stands out". `z` counts
standard deviations above the family's strangers, `probability` is that of the same training data
(null where a family is too small to say), `fdr` the share of all answers down to a row that are
expected to be wrong. An answer is evidence about training data, no proof.
"""
