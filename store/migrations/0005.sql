CREATE TABLE data_sets (
    base VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    recipe VARCHAR NOT NULL,
    loss VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    examples BIGINT NOT NULL,
    settings VARCHAR NOT NULL,
    counts VARCHAR NOT NULL,
    vector FLOAT[] NOT NULL,
    norm DOUBLE NOT NULL,
    made_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE data_sets IS 'Data sets that were kept as queries: fingerprints of the base''s gradient over them, none of their texts';
COMMENT ON COLUMN data_sets.recipe IS 'The recipe under whose seeds and rows the sketches were made';
COMMENT ON COLUMN data_sets.sha256 IS 'Of the bytes of the file, or of all files of a folder';
COMMENT ON COLUMN data_sets.examples IS 'How many of the rows went into the gradient';
COMMENT ON COLUMN data_sets.settings IS 'JSON: everything that changes the numbers';
COMMENT ON COLUMN data_sets.counts IS 'JSON: rows read and skipped, classes';
COMMENT ON COLUMN data_sets.vector IS 'Pooled over the slots, of unit length';

CREATE TABLE data_sketches (
    base VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    stack VARCHAR NOT NULL,
    layer INTEGER NOT NULL,
    role VARCHAR NOT NULL,
    sketch BLOB NOT NULL
);
COMMENT ON TABLE data_sketches IS 'Sketches of the gradient in each slot: over all examples, over groups of them, and with labels shuffled';
COMMENT ON COLUMN data_sketches.part IS '`whole`, `group N`, `shuffled N`';
