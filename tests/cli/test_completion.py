"""`deltadex completion` prints what the shell evaluates."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from deltadex.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell):
    result = CliRunner().invoke(main, ["completion", shell])

    assert result.exit_code == 0
    assert f"_DELTADEX_COMPLETE={shell}_complete" in result.stdout


def test_the_script_completes_commands():
    # what the script of bash runs, for `deltadex find-s<Tab>`
    environment = {
        **os.environ,
        "_DELTADEX_COMPLETE": "bash_complete",
        "COMP_WORDS": "deltadex find-s",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv[0] = 'deltadex'; from deltadex.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )

    assert done.stdout.strip() == "plain,find-similar"
