CREATE TABLE meta (schema_version INTEGER NOT NULL, application VARCHAR NOT NULL);
INSERT INTO meta VALUES (0, 'deltadex');

CREATE SEQUENCE model_keys;

CREATE TABLE families (
    base VARCHAR PRIMARY KEY,
    revision VARCHAR,
    architecture VARCHAR,
    slots VARCHAR NOT NULL
);
COMMENT ON TABLE families IS 'One base and what is known of its shapes (JSON: shapes, layout)';

CREATE TABLE models (
    key BIGINT PRIMARY KEY,
    base VARCHAR NOT NULL,
    id VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    code VARCHAR,
    reason VARCHAR,
    base_raw VARCHAR,
    revision VARCHAR,
    signature VARCHAR,
    content_sha256 VARCHAR,
    kind VARCHAR,
    method VARCHAR,
    source VARCHAR,
    author VARCHAR,
    run VARCHAR,
    dataset VARCHAR,
    dataset_raw VARCHAR,
    label_source VARCHAR,
    task VARCHAR,
    license VARCHAR,
    downloads BIGINT,
    created_at VARCHAR,
    notes VARCHAR[],
    duplicate_of VARCHAR,
    bytes_total BIGINT,
    bytes_read BIGINT,
    seconds DOUBLE,
    indexed_at TIMESTAMP
);
COMMENT ON TABLE models IS 'One row a model of a family, indexed or not; (base, id) is unique';
COMMENT ON COLUMN models.key IS 'New with every recording: what other tables refer to';
COMMENT ON COLUMN models.status IS 'indexed, failed, skipped or no-update';

CREATE TABLE recipes (
    id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    rank INTEGER NOT NULL,
    dim INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    version INTEGER NOT NULL,
    params VARCHAR NOT NULL,
    vectors VARCHAR NOT NULL
);
COMMENT ON COLUMN recipes.vectors IS 'The table that holds this recipe''s vectors';

CREATE TABLE slots (
    model BIGINT NOT NULL,
    stack VARCHAR NOT NULL,
    layer INTEGER NOT NULL,
    role VARCHAR NOT NULL,
    rows INTEGER NOT NULL,
    columns INTEGER NOT NULL,
    fro_norm DOUBLE NOT NULL,
    relative_norm DOUBLE,
    sigma FLOAT[] NOT NULL,
    energy DOUBLE NOT NULL,
    stable_rank DOUBLE NOT NULL,
    noise_floor DOUBLE NOT NULL,
    recipe VARCHAR,
    sketch BLOB
);
COMMENT ON COLUMN slots.fro_norm IS 'Frobenius norm of the update of this weight matrix';
COMMENT ON COLUMN slots.relative_norm IS 'The same over the norm of the base matrix; NULL for adapters';
COMMENT ON COLUMN slots.noise_floor IS 'Estimated Frobenius norm of storage rounding in the update';
COMMENT ON COLUMN slots.sketch IS 'Features of the update under `recipe`: float16, little-endian';

CREATE TABLE listings (
    base VARCHAR NOT NULL,
    parent VARCHAR NOT NULL,
    models VARCHAR NOT NULL,
    listed_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE listings IS 'An unfinished walk of the Hub: the children of each parent, as JSON';

CREATE VIEW coverage AS
SELECT base, count(*) AS models, count(*) FILTER (status = 'indexed') AS indexed,
       count(dataset) FILTER (status = 'indexed') AS labelled,
       count(DISTINCT dataset) FILTER (status = 'indexed') AS datasets
FROM models GROUP BY base ORDER BY base;

CREATE VIEW failures AS
SELECT base, status, code, id AS model, reason
FROM models WHERE status <> 'indexed' ORDER BY base, code, id;

CREATE VIEW sizes AS
SELECT base, id AS model, kind, bytes_total, bytes_read, seconds
FROM models ORDER BY bytes_total DESC;

CREATE VIEW ranks AS
SELECT m.base, m.id AS model, s.stack, s.layer, s.role, s.relative_norm, s.stable_rank, s.energy
FROM slots s JOIN models m ON m.key = s.model ORDER BY m.base, m.id, s.stack, s.layer, s.role;
