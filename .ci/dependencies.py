"""Print what deltadex needs, and what its named extras need, as requirements.

    python .ci/dependencies.py demo,test > wanted.txt
    pip install -c constraints.txt -r wanted.txt

pip checks the hashes in constraints.txt, and refuses a folder, which has none: so dependencies are
installed first, and deltadex after them without any.
"""

import sys
import tomllib
from pathlib import Path


def main() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    settings = tomllib.loads(text)
    extras = settings["project"]["optional-dependencies"]
    wanted = {*settings["project"]["dependencies"], *settings["build-system"]["requires"]}
    for extra in filter(None, sys.argv[1].split(",")):
        wanted.update(extras[extra])
    print("\n".join(sorted(wanted)))


if __name__ == "__main__":
    main()
