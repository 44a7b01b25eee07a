"""The note beside a catalog and what comes over its port, from whoever wrote them."""

import json
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import pyarrow as pa
import pytest
from bounds import damaged, few, json_values, within, write
from hypothesis import given
from hypothesis import strategies as st

from deltadex.store import remote
from deltadex.store.remote import Link
from deltadex.store.sharing import Gone, holder_path, read_holder

CHALLENGE, WELCOME = b"#CHALLENGE#", b"#WELCOME#"
"""As multiprocessing.connection has them."""

NOTE = {"pid": 1, "machine": socket.gethostname(), "port": 80, "key": "00"}


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 4000,
        b"[" * 100_000,
        b'{"pid": Infinity, "machine": "", "port": 1, "key": ""}',
        b'{"pid": NaN, "machine": "", "port": 1, "key": ""}',
        json.dumps(NOTE | {"port": 10**9}).encode(),
        json.dumps(NOTE | {"port": -1}).encode(),
        json.dumps(NOTE | {"key": "xyz"}).encode(),
        json.dumps(NOTE | {"key": None}).encode(),
        b"\xff",
        b"",
        b"null",
    ],
)
def test_a_strange_note_is_none(tmp_path, content):
    catalog = tmp_path / "c.duckdb"
    write(holder_path(catalog), content)

    assert read_holder(catalog) is None


def test_a_pipe_in_the_notes_place_is_none(tmp_path):
    os.mkfifo(holder_path(tmp_path / "c"))

    with within(seconds=5):
        assert read_holder(tmp_path / "c") is None


@few
@given(
    content=damaged(json.dumps(NOTE).encode())
    | st.dictionaries(st.sampled_from(list(NOTE)), json_values()).map(
        lambda changes: json.dumps(NOTE | changes).encode()
    )
)
def test_any_note_is_one_or_none(tmp_path, content):
    catalog = tmp_path / "c"
    write(holder_path(catalog), content)

    note = read_holder(catalog)

    assert note is None or 0 < note.port < 2**16


def received(sent):
    """The table; None where the other side is given up."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with within(seconds=10, mebibytes=16):
            try:
                return Link(ours).receive()[1]
            except Gone:
                return None


def message():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Link(ours).send({"do": "execute"}, pa.table({"a": [1, 2], "b": ["x", None]}))
        return theirs.recv(1 << 16)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 2**20])
def test_an_announced_length_takes_no_memory(length):
    assert received(struct.pack("!iQ", -1, length) + b"x") is None


@few
@given(body=st.binary(max_size=200))
def test_any_bytes_are_no_message(body):
    assert received(struct.pack("!i", len(body)) + body) is None


@few
@given(kept=st.integers(0, len(message()) - 1))
def test_a_message_cut_short_is_none(kept):
    assert received(message()[:kept]) is None


@few
@given(said=st.binary(min_size=64, max_size=64))
def test_nobody_gets_in_without_the_key(said):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        with pytest.raises(Gone):
            Link(ours).prove_as_host(b"key")


def test_a_silent_stranger_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(remote, "LONGEST_PROOF_S", 1)
    ours, theirs = socket.socketpair()
    with ours, theirs, within(seconds=10), pytest.raises(Gone):
        Link(ours).prove_as_host(b"key")


def test_a_proof_is_good_once_both_sides_have_given_theirs():
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        host, guest = Link(ours), Link(theirs)
        proof = pool.submit(host.prove_as_host, b"key")
        guest.prove_as_guest(b"key")
        proof.result(10)
        guest.send({"do": "nothing"})
        assert host.receive()[0] == {"do": "nothing"}


def test_one_guest_cannot_prove_another_the_holder():
    """A stranger at a dead holder's port passes one guest's challenge to another guest."""
    (first, to_first), (second, to_second) = socket.socketpair(), socket.socketpair()
    with first, to_first, second, to_second, ThreadPoolExecutor(2) as pool:
        proofs = [pool.submit(Link(side).prove_as_guest, b"key") for side in (first, second)]
        one, other = Connection(to_first.dup().detach()), Connection(to_second.dup().detach())
        one.send_bytes(CHALLENGE + b"x" * 20)
        one.recv_bytes()
        one.send_bytes(WELCOME)
        other.send_bytes(one.recv_bytes())
        one.send_bytes(other.recv_bytes())
        with pytest.raises(Gone):
            proofs[0].result(10)
        other.close()
        to_second.shutdown(socket.SHUT_RDWR)
        with pytest.raises(Gone):
            proofs[1].result(10)
