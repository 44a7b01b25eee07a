ALTER TABLE models ADD COLUMN layers INTEGER;
ALTER TABLE models ADD COLUMN vocabulary INTEGER;
ALTER TABLE models ADD COLUMN dtype VARCHAR;
COMMENT ON COLUMN models.layers IS 'Layers of a full checkpoint, over all stacks; NULL of adapters, and of models that deltadex 0.2 or earlier indexed';
COMMENT ON COLUMN models.vocabulary IS 'Rows of its token embeddings; NULL where it has none, and as `layers`';
COMMENT ON COLUMN models.dtype IS 'The type that most of its layer matrices are stored in, as safetensors spells it; NULL as `layers`';

CREATE TABLE footprints (
    model BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    vocabulary INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    share DOUBLE NOT NULL,
    tokenizer VARCHAR,
    note VARCHAR,
    tokens BLOB NOT NULL
);
COMMENT ON TABLE footprints IS 'Which tokens of the vocabulary occurred in a model''s training: the rows of its input embedding that moved';
COMMENT ON COLUMN footprints.kind IS 'exact, tied (the sure tokens alone), frozen, dense, or none where no embedding was read';
COMMENT ON COLUMN footprints.vocabulary IS 'Rows that were compared with the base''s';
COMMENT ON COLUMN footprints.share IS 'Of the rows, how many were read, 0 to 1';
COMMENT ON COLUMN footprints.tokenizer IS 'Hash in `tokenizers` of the model''s own; NULL for that of its base';
COMMENT ON COLUMN footprints.tokens IS 'zlib: a bit for each row of the vocabulary, then a byte of strength for each touched one';

CREATE TABLE tokenizers (
    sha256 VARCHAR NOT NULL,
    content BLOB NOT NULL
);
COMMENT ON TABLE tokenizers IS 'Tokenizers of bases, and of models that have another one';
COMMENT ON COLUMN tokenizers.content IS 'zlib: a tokenizer.json; or of one that adds tokens to another, {"extends": hash, "added_tokens": [...]}';

ALTER TABLE families ADD COLUMN tokenizer VARCHAR;
COMMENT ON COLUMN families.tokenizer IS 'Hash in `tokenizers`';
