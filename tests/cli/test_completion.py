"""`deltadex completion` prints what the shell evaluates."""

import os
import sys

from click.testing import CliRunner
from running import printed

from deltadex.cli import main


def test_the_script_of_a_shell_completes_commands():
    for shell in ("bash", "zsh", "fish"):
        script = CliRunner().invoke(main, ["completion", shell]).stdout
        assert f"_DELTADEX_COMPLETE={shell}_complete" in script
    # what the script of bash runs, for `deltadex find-s<Tab>`
    environment = {
        **os.environ,
        "_DELTADEX_COMPLETE": "bash_complete",
        "COMP_WORDS": "deltadex find-s",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv[0] = 'deltadex'; from deltadex.cli import main; main()"

    assert printed(sys.executable, "-c", code, env=environment).strip() == "plain,find-similar"
