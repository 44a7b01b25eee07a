CREATE TABLE base_signatures (
    base VARCHAR NOT NULL,
    version INTEGER NOT NULL,
    registered BOOLEAN NOT NULL,
    source VARCHAR NOT NULL,
    revision VARCHAR,
    facts VARCHAR NOT NULL,
    matrices VARCHAR NOT NULL,
    runs BLOB NOT NULL,
    invariants BLOB NOT NULL,
    made_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE base_signatures IS 'Known bases: a run of entries of every layer matrix, and what no change of basis alters; `trace` compares models with them';
COMMENT ON COLUMN base_signatures.registered IS 'Whether `bases add` named it; else it is the base of a family';
COMMENT ON COLUMN base_signatures.source IS 'The folder or Hub id that it was read from';
COMMENT ON COLUMN base_signatures.facts IS 'JSON: what its config.json says of type, layers, width and vocabulary';
COMMENT ON COLUMN base_signatures.matrices IS 'JSON: of each run tensor, group, layer, shape, stored type and entries';
COMMENT ON COLUMN base_signatures.runs IS 'The entries of all runs in that order, as stored, little-endian';
