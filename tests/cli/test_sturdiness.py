"""Commands on a machine that refuses memory, has few processors, or stops them."""

import os
import re
import resource
import signal
import subprocess
import sys

import pytest
from running import run

from deltadex.cli import main

COMMAND = (sys.executable, "-m", "deltadex")


def limited(n_bytes):
    """What a shell does for `ulimit -v`, and `ulimit -c 0`."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))

    return limit


def under(n_bytes, *command):
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, preexec_fn=limited(n_bytes)
    )


@pytest.mark.skipif(sys.platform != "linux", reason="others do not hold to the limit")
@pytest.mark.parametrize(
    "mib", [450, *(pytest.param(m, marks=pytest.mark.slow) for m in (200, 700, 1000, 1300))]
)
@pytest.mark.parametrize("asked", ["find-similar a-0", "index {f}/base {f}/models", "rank a-0"])
def test_below_a_limit_of_memory_a_command_answers_or_says_in_one_line_that_it_is_too_low(
    family, tmp_path, mib, asked
):
    words = asked.format(f=family).split()

    done = under(mib << 20, *COMMAND, *words, "--db", family / "c.duckdb", "--json")

    if done.returncode:
        assert (done.returncode, done.stdout) == (3, "")
        assert re.fullmatch("Error: .*not enough memory.*\n", done.stderr)


NATIVE_END = """
import os, sys
from deltadex import cli
def end(*_): os.write(2, b"terminate called\\n"); {how}
cli.Boundary.invoke = end
sys.argv = ["deltadex", "ls"]
cli.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others do not hold to the limit")
@pytest.mark.parametrize("how", ["os._exit(1)", "os.kill(os.getpid(), 11)"])
def test_a_library_that_ends_the_process_below_a_limit_is_one_line(how):
    done = under(1 << 40, sys.executable, "-c", NATIVE_END.format(how=how))

    limit = "this process is limited to 1.0 TiB, by ulimit -v or -d"
    assert (done.returncode, done.stderr) == (3, f"Error: not enough memory: {limit}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="others do not hold to the limit")
def test_a_limit_that_is_high_enough_changes_nothing(family):
    words = (*COMMAND, "ls", "--db", str(family / "c.duckdb"))
    free = subprocess.run(words, capture_output=True, text=True)

    done = under(1 << 40, *words)

    assert (done.returncode, done.stdout, done.stderr) == (0, free.stdout, free.stderr)


@pytest.mark.parametrize("chosen", [None, "ACTIVE"])
def test_threads_that_wait_leave_the_processor_unless_the_user_wants_them_to_spin(
    monkeypatch, chosen
):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for name in ("OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"):
        os.environ.pop(name, None)
    if chosen:
        os.environ["OMP_WAIT_POLICY"] = chosen

    with pytest.raises(SystemExit):
        main(["--version"])

    assert os.environ["OMP_WAIT_POLICY"] == (chosen or "PASSIVE")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("find-similar", "a-0"), "What was not finished is not saved; run the same"),
        (("merge", "{f}/c.duckdb"), "What was finished is saved; run the same command again to"),
        (("index", "{f}/base", "{f}/models"), "No model was finished by this run; run the"),
    ],
)
def test_a_stopped_command_says_what_is_saved(family, monkeypatch, asked, said):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("deltadex.store.Catalog.open", stop)

    result = run(family, *(word.format(f=family) for word in asked))

    assert result.exit_code == 130
    assert result.stderr.startswith(f"Interrupted. {said}")


DEMO = """
import sys
from deltadex import cli
from deltadex.questions.demo import family
family.BASE_STEPS, family.TUNING_STEPS = 3, 1
sys.argv = ["deltadex", "demo", *sys.argv[1:]]
cli.main()
"""


def _demo_until(line, folder):
    """The lines of a demo that SIGTERM ends once it has said that line."""
    command = [sys.executable, "-c", DEMO, str(folder), "--db", str(folder / "c.duckdb")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        lines = []
        for said in process.stderr:
            lines.append(said.rstrip("\n"))
            if line in said:
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    return lines


@pytest.mark.slow
def test_a_stopped_demo_says_each_model_and_what_is_truly_kept_and_goes_on_there(tmp_path):
    before = _demo_until("base: 0 of", tmp_path)
    assert before[-1] == "Terminated. No model is saved yet; run the same command again."
    assert not (tmp_path / "base" / "model.safetensors").exists()

    first = _demo_until("  2/35 ", tmp_path)
    again = _demo_until("  4/35 ", tmp_path)

    for lines in (first, again):
        n_said = re.fullmatch(
            r"Terminated\. The base and (\d+) fine-tunes are saved in .*; run the same command "
            r"again to continue\.",
            lines[-1],
        )
        assert n_said
    assert int(n_said[1]) == len(list((tmp_path / "models").glob("*/*.safetensors"))) >= 4
    assert not [line for line in again if line.startswith(("  base", "   1/35", "   2/35"))]
