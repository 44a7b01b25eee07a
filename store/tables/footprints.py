"""The tables `footprints` and `tokenizers`: which tokens models were trained on, and the words of a
base to which updates answer."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from ...arrays import Int8, UInt8, UInt32
from ...errors import StoreDamaged
from ...records import Footprint, FootprintKind
from ..session import Session
from .models import insert_rows

MOST_BYTES = 8 << 10
"""Of a footprint of `USUAL_ROWS` rows, and in proportion: strengths are made coarser above it."""

USUAL_ROWS = 30_000

COARSER = (1, 2, 4, 8)
"""Quarters of an octave that one step of strength is, until a footprint fits."""

LEVEL = 9

OF_BASE = "FROM footprints f JOIN models m ON m.key = f.model WHERE m.base = ?"
"""The footprints of a base's models."""

NAMING = f"{OF_BASE} AND f.kind IN ('exact', 'tied')"
"""Those of them that name tokens."""

LARGEST_VOCABULARY = 1 << 24
"""Rows of an embedding that a stored footprint may have."""


def pack(footprint: Footprint) -> bytes:
    """A bit for each row, then a byte for each touched one; `unpack` is the inverse, but for
    strengths that were made coarser."""
    bits = np.zeros(footprint.vocabulary, dtype=bool)
    bits[footprint.tokens] = True
    packed, limit = np.packbits(bits).tobytes(), footprint.vocabulary * MOST_BYTES // USUAL_ROWS
    for step in COARSER:
        strengths = footprint.strengths // step * step
        content = zlib.compress(packed + strengths.tobytes(), LEVEL)
        if len(content) <= limit:
            break
    return content


def unpack(
    content: bytes, vocabulary: int, touched: int
) -> tuple[UInt32[np.ndarray, " touched"], UInt8[np.ndarray, " touched"]]:
    """Token numbers and strengths; ValueError where the bytes are not theirs."""
    n_bits = (vocabulary + 7) // 8
    opened = zlib.decompressobj()
    try:
        plain = opened.decompress(content, n_bits + touched + 1)
    except zlib.error as err:
        raise ValueError("its bytes cannot be decompressed") from err
    bits = np.unpackbits(np.frombuffer(plain[:n_bits], np.uint8), count=vocabulary)
    tokens = np.flatnonzero(bits).astype(np.uint32)
    if len(plain) != n_bits + touched or len(tokens) != touched:
        raise ValueError("its bytes do not fit its counts")
    return tokens, np.frombuffer(plain[n_bits:], np.uint8)


def as_stored(footprint: Footprint) -> Footprint:
    """A footprint with strengths as coarse as they are stored."""
    tokens, strengths = unpack(pack(footprint), footprint.vocabulary, len(footprint.tokens))
    return replace(footprint, tokens=tokens, strengths=strengths)


def tokenizer_hash(content: bytes) -> str:
    """Of a tokenizer's JSON."""
    return hashlib.sha256(content).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ModelFootprint:
    """A stored footprint, and whose it is."""

    model: str
    key: int
    footprint: Footprint


def footprint_row(footprint: Footprint) -> dict[str, Any]:
    """A footprint's columns; `footprint_of` is the inverse."""
    return {
        "kind": footprint.kind,
        "vocabulary": footprint.vocabulary,
        "touched": len(footprint.tokens),
        "share": footprint.share,
        "tokenizer": footprint.tokenizer,
        "note": footprint.note,
        "tokens": pack(footprint),
        "lexicon": footprint.lexicon,
        "responses": footprint.responses or None,
    }


def footprint_of(row: Mapping[str, Any]) -> Footprint:
    """A footprint from its columns; ValueError where they do not fit one another."""
    touched, vocabulary = row["touched"], row["vocabulary"]
    is_counted = 0 <= touched <= vocabulary <= LARGEST_VOCABULARY
    if row["kind"] not in get_args(FootprintKind) or not 0 <= row["share"] <= 1 or not is_counted:
        raise ValueError("a footprint that is not what `deltadex index` writes")
    tokens, strengths = unpack(row["tokens"], vocabulary, touched)
    return Footprint(
        kind=row["kind"],
        vocabulary=vocabulary,
        tokens=tokens,
        strengths=strengths,
        share=row["share"],
        tokenizer=row["tokenizer"],
        own_tokenizer=row.get("own_tokenizer") or b"",
        note=row["note"],
        lexicon=row.get("lexicon"),
        responses=row.get("responses") or b"",
    )


def insert_footprints(session: Session, footprints: Sequence[tuple[int, Footprint]]) -> None:
    """Write footprints, each under its model's key, and the tokenizers that they bring."""
    rows = [{"model": key, **footprint_row(one)} for key, one in footprints]
    insert_rows(session, "footprints", rows)
    for _, one in footprints:
        if one.own_tokenizer and one.tokenizer is not None:
            insert_tokenizer(session, one.tokenizer, one.own_tokenizer)


def insert_tokenizer(session: Session, sha256: str, content: bytes) -> None:
    """Keep a tokenizer's JSON under its hash."""
    if not session.execute("SELECT 1 FROM tokenizers WHERE sha256 = ?", [sha256]):
        packed = zlib.compress(content, LEVEL)
        session.execute("INSERT INTO tokenizers VALUES (?, ?)", [sha256, packed])


def _stored_tokenizer(session: Session, sha256: str) -> bytes:
    rows = session.execute("SELECT content FROM tokenizers WHERE sha256 = ?", [sha256])
    try:
        content = zlib.decompress(rows[0][0]) if rows else b""
    except zlib.error:
        content = b""
    if not rows or tokenizer_hash(content) != sha256:
        raise StoreDamaged(f"{session.path}: the tokenizer {sha256} is damaged: index again")
    return content


def select_footprints_of(session: Session, base: str, keys: Sequence[int]) -> dict[int, Footprint]:
    """Those of some models of a base, by key, with the tokenizer that theirs extends."""
    found = Footprints(session).all(keys=keys)
    roots = root_tokenizers(session, base, [one.footprint for one in found])
    return {one.key: rooted for one, rooted in zip(found, roots, strict=True)}


def root_tokenizers(
    session: Session, base: str, footprints: Sequence[Footprint]
) -> list[Footprint]:
    """Footprints with the tokenizer that theirs extends, in which tokens have the same numbers;
    None for the base's."""
    own = session.execute("SELECT tokenizer FROM families WHERE base = ?", [base])
    roots: dict[str | None, str | None] = {None: None, own[0][0] if own else None: None}
    for one in footprints:
        if one.tokenizer is not None and one.tokenizer not in roots:
            content = one.own_tokenizer or _stored_tokenizer(session, one.tokenizer)
            extends = _extended(content)
            roots[one.tokenizer] = roots.get(extends, extends) if extends else one.tokenizer
    return [replace(one, tokenizer=roots[one.tokenizer]) for one in footprints]


def _extended(content: bytes) -> str | None:
    """The hash of the tokenizer that one extends; None where it is whole."""
    return json.loads(content)["extends"] if content.startswith(_EXTENDS) else None


_EXTENDS = b'{"extends"'


def footprint_stamp(session: Session, base: str) -> str:
    """Of a family's footprints: another one where any was added or replaced."""
    what = "sum(hash(f.model, f.kind, f.touched, f.share, f.tokenizer))"
    rows = session.execute(f"SELECT {what} {OF_BASE}", [base])
    return str(rows[0][0])


def take_tokenizer(target: Session, source: Session, sha256: str) -> None:
    """Copy a tokenizer, and the one that it extends, from another catalog."""
    content = _stored_tokenizer(source, sha256)
    insert_tokenizer(target, sha256, content)
    extended = json.loads(content).get("extends")
    if extended is not None:
        take_tokenizer(target, source, extended)


def take_family_tokenizer(target: Session, source: Session, base: str) -> None:
    """Copy the tokenizer of a base that the target keeps none of."""
    sql = "SELECT tokenizer FROM families WHERE base = ? AND tokenizer IS NOT NULL"
    theirs = source.execute(sql, [base])
    if theirs and not target.execute(sql, [base]):
        take_tokenizer(target, source, theirs[0][0])
        values = [theirs[0][0], base]
        target.execute("UPDATE families SET tokenizer = ? WHERE base = ?", values)


@dataclass(frozen=True, slots=True)
class Footprints:
    """The footprints of a catalog, and the tokenizers of their tokens."""

    session: Session

    def all(
        self, base: str | None = None, keys: Sequence[int] | None = None
    ) -> list[ModelFootprint]:
        """Those of a family's models, of the models with these keys, or of all, by base and id."""
        rows = self.session.rows(
            "SELECT m.id, f.* FROM footprints f JOIN models m ON m.key = f.model "
            "WHERE ($1 IS NULL OR m.base = $1) "
            "AND ($2 IS NULL OR f.model IN (SELECT unnest($2::BIGINT[]))) ORDER BY m.base, m.id",
            [base, None if keys is None else list(keys)],
        )
        found = []
        for row in rows:
            try:
                footprint = footprint_of(row)
            except ValueError as err:
                line = f"{self.session.path}: the footprint of {row['id']}: {err}; index it again"
                raise StoreDamaged(line) from err
            found.append(ModelFootprint(row["id"], row["model"], footprint))
        return found

    def keys(self, base: str) -> list[int]:
        """Of a family's models whose footprints name tokens, rising."""
        return self.session.column(f"SELECT f.model {NAMING} ORDER BY f.model", [base])

    def wordless(self, base: str) -> dict[int, str]:
        """The kinds of a family's footprints that name no tokens, by the model's key."""
        sql = f"SELECT f.model, f.kind {OF_BASE} AND f.kind NOT IN ('exact', 'tied')"
        return dict(self.session.execute(sql, [base]))

    def kinds_by_key(self, base: str) -> dict[int, str]:
        """The kinds of a family's footprints that name tokens of the base's tokenizer, or of one
        that extends it, and of which all rows were read."""
        rows = self.session.execute(
            f"SELECT f.model, f.kind, f.tokenizer {NAMING} AND f.share = 1", [base]
        )
        own = self.family_tokenizer(base)
        others = {name for _, _, name in rows} - {None, own}
        extended = {name: _extended(_stored_tokenizer(self.session, name)) for name in others}
        fitting = {None, own} | {name for name in others if own and extended[name] == own}
        return {int(key): str(kind) for key, kind, name in rows if name in fitting}

    def of(self, key: int) -> Footprint | None:
        """That of the model with this key; None where it has none."""
        found = self.all(keys=[key])
        return found[0].footprint if found else None

    def ids(self, base: str) -> set[str]:
        """Of a family's models that have one, of whatever kind."""
        return set(self.session.column(f"SELECT m.id {OF_BASE}", [base]))

    def answered(self, base: str) -> set[str]:
        """Of a family's models that were read with a lexicon, whether it told anything or not."""
        return set(self.session.column(f"SELECT m.id {OF_BASE} AND f.lexicon IS NOT NULL", [base]))

    def add(self, base: str, id: str, footprint: Footprint) -> None:
        """Give a model of the catalog a footprint, in place of its last; nothing where the model
        is gone."""

        def replace_last(session: Session) -> None:
            sql = "SELECT key FROM models WHERE base = ? AND id = ?"
            for (key,) in session.execute(sql, [base, id]):
                session.execute("DELETE FROM footprints WHERE model = ?", [key])
                insert_footprints(session, [(key, footprint)])

        self.session.write(replace_last)

    def lexicons(self, base: str) -> list[str]:
        """The hashes of the lexicons that responses of a family's models are of, the commonest
        first."""
        return self.session.column(
            f"SELECT f.lexicon {OF_BASE} "
            "AND f.responses IS NOT NULL GROUP BY ALL ORDER BY count(*) DESC, f.lexicon",
            [base],
        )

    def responses(self, base: str, lexicon: str) -> list[tuple[int, bytes]]:
        """Key and stored responses of a family's models, by key."""
        return self.session.execute(
            f"SELECT f.model, f.responses {OF_BASE} AND f.lexicon = ? "
            "AND f.responses IS NOT NULL ORDER BY f.model",
            [base, lexicon],
        )

    def save_lexicon(self, content: bytes) -> str:
        """Keep a lexicon's JSON; returns its hash."""
        sha256 = tokenizer_hash(content)
        self.session.write(lambda s: insert_tokenizer(s, sha256, content))
        return sha256

    def save_tokenizer(self, base: str, content: bytes) -> None:
        """Keep the tokenizer of a base: its `tokenizer.json`."""
        sha256 = tokenizer_hash(content)

        def keep(session: Session) -> None:
            insert_tokenizer(session, sha256, content)
            session.execute("UPDATE families SET tokenizer = ? WHERE base = ?", [sha256, base])

        self.session.write(keep)

    def tokenizer(self, sha256: str, own: bytes = b"") -> bytes:
        """The whole `tokenizer.json` of that hash, or of a footprint that is not stored (`own`);
        raises `StoreDamaged` where it is missing or damaged."""
        content = own or _stored_tokenizer(self.session, sha256)
        extended = json.loads(content).get("extends")
        if extended is None:
            return content
        whole = json.loads(_stored_tokenizer(self.session, extended))
        whole["added_tokens"] = json.loads(content)["added_tokens"]
        return json.dumps(whole).encode()

    def family_tokenizer(self, base: str) -> str | None:
        """The hash of a base's tokenizer; None where none is kept."""
        rows = self.session.execute("SELECT tokenizer FROM families WHERE base = ?", [base])
        return rows[0][0] if rows else None


STEPS = 32.0
"""Steps of a stored response in one standard deviation over the words."""


@dataclass(frozen=True, slots=True, eq=False)
class Lexicon:
    """Words of a base, the most frequent first.

    Attributes:
        words: Those of responses; whole words of the vocabulary.
        others: Further words of the vocabulary, of which only `vectors` are known.
        vectors: Of all words, their input embeddings on the main axes, centred and of unit length,
            in steps of 1/127: (words and others, axes).
    """

    words: Sequence[str]
    others: Sequence[str]
    vectors: Int8[np.ndarray, "all axes"]

    def to_bytes(self) -> bytes:
        """As JSON; `from_bytes` is the inverse."""
        document = {
            "words": list(self.words),
            "others": list(self.others),
            "axes": self.vectors.shape[1],
            "vectors": base64.b64encode(self.vectors.tobytes()).decode(),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Lexicon:
        document = json.loads(content)
        vectors = np.frombuffer(base64.b64decode(document["vectors"]), np.int8)
        return cls(document["words"], document["others"], vectors.reshape(-1, document["axes"]))
