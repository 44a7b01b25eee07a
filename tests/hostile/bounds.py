"""What strangers' files may cost, and the errors they may give."""

import signal
import tracemalloc
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from deltadex.errors import ModelError

few = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
many = settings(few, max_examples=5000, derandomize=False)
amounts = pytest.mark.parametrize(
    "amount", [few, pytest.param(many, marks=pytest.mark.slow)], ids=["few", "many"]
)
"""How many examples: few by default, the same ones every time; more where it may take long."""

HOSTILE_TEXTS = (
    "../../etc/passwd",
    "~nobody-here/x",
    "a\0b",
    "\x1b]0;owned\x07\x1b[31mred",
    "\x9b31mred",
    "two\nlines\r\ttab",
    "[bold red]markup[/] [link=file:///etc/passwd]x[/link] \\",
    "\u202egpj.exe\u202c \u2066\u2069",
    "</script><img src=x onerror='window.hacked=1'>",
    ":pile_of_poo: $\\frac{1}$ %s {0} {{x}}",
    "caf\udce9",
    "x" * 10_000,
)
"""Names as strangers may choose them."""


@contextmanager
def within(*, seconds=20, mebibytes=None):
    """Fails what takes longer, or more of Python's memory at once."""

    def stop(number, frame):
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    if mebibytes is not None:
        tracemalloc.start()
    try:
        yield
        if mebibytes is not None:
            assert tracemalloc.get_traced_memory()[1] < mebibytes << 20
    finally:
        tracemalloc.stop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def result_or_refusal(call):
    """What the call gives, or the documented refusal; any other error is a defect."""
    try:
        return call()
    except ModelError as err:
        refusal = err
    assert refusal.code != "internal"
    assert len(refusal.reason) < 2000
    assert "\n" not in refusal.reason
    return refusal


def code_of(call):
    """The code with which it is refused; "" for a result."""
    given = result_or_refusal(call)
    return given.code if isinstance(given, ModelError) else ""


def texts():
    """Any text, and the hostile ones."""
    return st.sampled_from(HOSTILE_TEXTS) | st.text(max_size=20)


def json_values():
    """Anything that Python's JSON reader can give, NaN and huge numbers among it."""
    numbers = st.integers() | st.sampled_from([2**63, 10**400, -1, 0, 1e308]) | st.floats()
    unicode = texts().filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
    return st.recursive(
        st.none() | st.booleans() | numbers | unicode,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(unicode, inner, max_size=4),
        max_leaves=8,
    )


def damaged(whole):
    """The bytes with some of them changed, cut off, or put in twice."""

    def change(edits):
        data = bytearray(whole)
        for kind, place, byte in edits:
            at = place % (len(data) or 1)
            if kind == 0 and data:
                data[at] = byte
            elif kind == 1:
                data[at:at] = data[at : at + byte % 16] or bytes([byte])
            else:
                del data[at : at + byte % 16]
        return bytes(data)

    edit = st.tuples(st.integers(0, 2), st.integers(0, 10**6), st.integers(0, 255))
    return st.lists(edit, max_size=6).map(change)
