CREATE TABLE meta (
    schema_version INTEGER NOT NULL,
    application VARCHAR NOT NULL,
    catalog VARCHAR,
    commits BIGINT DEFAULT 0
);
INSERT INTO meta VALUES (0, 'deltadex', CAST(uuid() AS VARCHAR), 0);
COMMENT ON COLUMN meta.catalog IS 'This file''s own name; a backup has another';
COMMENT ON COLUMN meta.commits IS 'How many transactions were committed; the commit log beside the file knows the last ones';

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
    indexed_at TIMESTAMP,
    verified VARCHAR
);
CREATE INDEX models_by_id ON models (id);
COMMENT ON TABLE models IS 'One row a model of a family, indexed or not; (base, id) is unique';
COMMENT ON COLUMN models.key IS 'New with every recording: what other tables refer to';
COMMENT ON COLUMN models.status IS 'indexed, failed, skipped or no-update';
COMMENT ON COLUMN models.verified IS 'How the weight files'' bytes were compared: `sha256`, `crc`, `unverified`; NULL where nothing is listed of them';

CREATE TABLE recipes (
    id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    rank INTEGER NOT NULL,
    dim INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    version INTEGER NOT NULL,
    params VARCHAR NOT NULL,
    vectors VARCHAR NOT NULL,
    share DOUBLE DEFAULT 1.0
);
COMMENT ON COLUMN recipes.vectors IS 'The table that holds this recipe''s vectors';
COMMENT ON COLUMN recipes.share IS 'Share of every layer matrix that its fingerprints saw, 0…1';

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
    sketch BLOB,
    zero_share DOUBLE
);
COMMENT ON COLUMN slots.fro_norm IS 'Frobenius norm of the update of this weight matrix';
COMMENT ON COLUMN slots.relative_norm IS 'The same over the norm of the base matrix; NULL for adapters';
COMMENT ON COLUMN slots.noise_floor IS 'Estimated Frobenius norm of storage rounding in the update';
COMMENT ON COLUMN slots.recipe IS 'Whose sketch this is; a model has its slots once a recipe that keeps sketches';
COMMENT ON COLUMN slots.sketch IS 'Features of the update under `recipe`: float16, little-endian, of version 2; codes of two bits of version 3';
COMMENT ON COLUMN slots.zero_share IS 'Share of the update''s entries that are exactly 0, 0…1; NULL where it was not counted';

CREATE TABLE listings (
    base VARCHAR NOT NULL,
    parent VARCHAR NOT NULL,
    models VARCHAR NOT NULL,
    listed_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE listings IS 'An unfinished walk of the Hub: the children of each parent, as JSON';

CREATE TABLE studies (
    model BIGINT NOT NULL,
    study VARCHAR NOT NULL,
    settings VARCHAR NOT NULL,
    results VARCHAR NOT NULL,
    made_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE studies IS 'What a study found of a model: one row a study and its settings';
COMMENT ON COLUMN studies.settings IS 'JSON: everything that changes the numbers';
COMMENT ON COLUMN studies.results IS 'JSON: the document that the study prints';

CREATE TABLE linear_sketches (
    model BIGINT NOT NULL,
    recipe VARCHAR NOT NULL,
    stack VARCHAR,
    layer INTEGER,
    numbers FLOAT[] NOT NULL
);
COMMENT ON TABLE linear_sketches IS 'CountSketches of a model''s updates, linear and not normalised: one row a layer, one of all layers';
COMMENT ON COLUMN linear_sketches.layer IS 'NULL of the sketch of all layers, which has 1,024 numbers; a layer''s has 256';

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

CREATE TABLE attachments (
    name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    base VARCHAR NOT NULL,
    recipe VARCHAR NOT NULL,
    index_id VARCHAR NOT NULL,
    serial BIGINT NOT NULL,
    manifest VARCHAR NOT NULL,
    models BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    attached_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE attachments IS 'Published indexes that are searched beside the models; their files are in the folder beside the catalog';
COMMENT ON COLUMN attachments.source IS 'Where the index came from, and is fetched again from';
COMMENT ON COLUMN attachments.manifest IS 'SHA-256 of the manifest: every file of the index is named in it with its own';
COMMENT ON COLUMN attachments.serial IS 'How often that index was published: a refresh never goes back';

CREATE TABLE attached_removals (
    index_id VARCHAR NOT NULL,
    hash VARCHAR NOT NULL
);
COMMENT ON TABLE attached_removals IS 'Models that publishers removed from indexes that were attached: no older copy brings them back';
COMMENT ON COLUMN attached_removals.hash IS 'SHA-256 of the base''s name, a line feed and the model''s id';

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

CREATE VIEW study_results AS
SELECT m.base, m.id AS model, s.study, s.settings, s.results, s.made_at
FROM studies s JOIN models m ON m.key = s.model ORDER BY m.base, m.id, s.study, s.made_at;
COMMENT ON VIEW study_results IS 'Every study by the name of its model';

CREATE VIEW slot_statistics AS
SELECT s.* FROM slots s LEFT JOIN recipes r ON r.id = s.recipe
QUALIFY dense_rank() OVER (
    PARTITION BY s.model ORDER BY coalesce(r.share, 1.0) DESC, r.version DESC NULLS LAST, s.recipe) = 1;
COMMENT ON VIEW slot_statistics IS 'The slots of each model once: as the fingerprint that saw most of it measured them';

CREATE VIEW ranks AS
SELECT m.base, m.id AS model, s.stack, s.layer, s.role, s.relative_norm, s.stable_rank, s.energy, s.zero_share
FROM slot_statistics s JOIN models m ON m.key = s.model
ORDER BY m.base, m.id, s.stack, s.layer, s.role;
