CREATE TABLE meta (
    schema_version INTEGER NOT NULL,
    application VARCHAR NOT NULL,
    catalog VARCHAR,
    commits BIGINT DEFAULT 0
);
COMMENT ON COLUMN meta.catalog IS 'This file''s own name; a backup has another';
COMMENT ON COLUMN meta.commits IS 'How many transactions were committed; the commit log beside the file knows the last ones';
INSERT INTO meta VALUES (0, 'deltadex', CAST(uuid() AS VARCHAR), 0);

CREATE SEQUENCE model_keys;

CREATE TABLE families (
    base VARCHAR PRIMARY KEY,
    revision VARCHAR,
    architecture VARCHAR,
    slots VARCHAR NOT NULL,
    license VARCHAR,
    tokenizer VARCHAR
);
COMMENT ON TABLE families IS 'One base and what is known of its shapes (JSON: shapes, layout)';
COMMENT ON COLUMN families.license IS 'As the base''s card names it';
COMMENT ON COLUMN families.tokenizer IS 'Hash in `tokenizers`';

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
    verified VARCHAR,
    layers INTEGER,
    vocabulary INTEGER,
    dtype VARCHAR
);
COMMENT ON TABLE models IS 'One row a model of a family, indexed or not; (base, id) is unique';
COMMENT ON COLUMN models.key IS 'New with every recording: what other tables refer to';
COMMENT ON COLUMN models.status IS 'indexed, failed, skipped or no-update';
COMMENT ON COLUMN models.verified IS 'How the weight files'' bytes were compared: `sha256`, `crc`, `unverified`; NULL where nothing is listed of them';
COMMENT ON COLUMN models.layers IS 'Layers of a full checkpoint, over all stacks; NULL of adapters';
COMMENT ON COLUMN models.vocabulary IS 'Rows of its token embeddings; NULL where it has none, and as `layers`';
COMMENT ON COLUMN models.dtype IS 'The type that most of its layer matrices are stored in, as safetensors spells it; NULL as `layers`';
CREATE INDEX models_by_id ON models (id);

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
COMMENT ON COLUMN slots.sketch IS 'Features of the update under `recipe`: weights in float16, little-endian, then codes of two bits';
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
COMMENT ON COLUMN attachments.serial IS 'How often that index was published: a refresh never goes back';
COMMENT ON COLUMN attachments.manifest IS 'SHA-256 of the manifest: every file of the index is named in it with its own';

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

CREATE TABLE footprints (
    model BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    vocabulary INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    share DOUBLE NOT NULL,
    tokenizer VARCHAR,
    note VARCHAR,
    tokens BLOB NOT NULL,
    lexicon VARCHAR,
    responses BLOB
);
COMMENT ON TABLE footprints IS 'Which tokens of the vocabulary occurred in a model''s training: the rows of its input embedding that moved';
COMMENT ON COLUMN footprints.kind IS 'exact, tied (the sure tokens alone), frozen, dense, or none where no embedding was read';
COMMENT ON COLUMN footprints.vocabulary IS 'Rows that were compared with the base''s';
COMMENT ON COLUMN footprints.share IS 'Of the rows, how many were read, 0 to 1';
COMMENT ON COLUMN footprints.tokenizer IS 'Hash in `tokenizers` of the model''s own; NULL for that of its base';
COMMENT ON COLUMN footprints.lexicon IS 'Hash in `tokenizers` of the words that `responses` are of';
COMMENT ON COLUMN footprints.responses IS 'A signed byte for each word: how strongly the update answers to it, in 1/32 standard deviations above the mean';
COMMENT ON COLUMN footprints.tokens IS 'zlib: a bit for each row of the vocabulary, then a byte of strength for each touched one';

CREATE TABLE tokenizers (
    sha256 VARCHAR NOT NULL,
    content BLOB NOT NULL
);
COMMENT ON TABLE tokenizers IS 'Tokenizers of bases, of models that have another one, and lexicons: words of a base with their vectors';
COMMENT ON COLUMN tokenizers.content IS 'zlib: a tokenizer.json; or of one that adds tokens to another, {"extends": hash, "added_tokens": [...]}';

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

CREATE VIEW slot_statistics AS
SELECT s.* FROM slots s LEFT JOIN recipes r ON r.id = s.recipe
QUALIFY dense_rank() OVER (
    PARTITION BY s.model ORDER BY coalesce(r.share, 1.0) DESC, s.recipe) = 1;
COMMENT ON VIEW slot_statistics IS 'The slots of each model once: as the fingerprint that saw most of it measured them';

CREATE VIEW ranks AS
SELECT m.base, m.id AS model, s.stack, s.layer, s.role, s.relative_norm, s.stable_rank, s.energy, s.zero_share
FROM slot_statistics s JOIN models m ON m.key = s.model
ORDER BY m.base, m.id, s.stack, s.layer, s.role;

CREATE VIEW study_results AS
SELECT m.base, m.id AS model, s.study, s.settings, s.results, s.made_at
FROM studies s JOIN models m ON m.key = s.model ORDER BY m.base, m.id, s.study, s.made_at;
COMMENT ON VIEW study_results IS 'Every study by the name of its model';

CREATE VIEW licence_terms AS
SELECT * FROM (VALUES
    ('apache-2.0', 'permissive', 'https://spdx.org/licenses/Apache-2.0'),
    ('mit', 'permissive', 'https://spdx.org/licenses/MIT'),
    ('bsd', 'permissive', 'https://spdx.org/licenses/BSD-3-Clause'),
    ('bsd-2-clause', 'permissive', 'https://spdx.org/licenses/BSD-2-Clause'),
    ('bsd-3-clause', 'permissive', 'https://spdx.org/licenses/BSD-3-Clause'),
    ('bsl-1.0', 'permissive', 'https://spdx.org/licenses/BSL-1.0'),
    ('isc', 'permissive', 'https://spdx.org/licenses/ISC'),
    ('zlib', 'permissive', 'https://spdx.org/licenses/Zlib'),
    ('unlicense', 'permissive', 'https://spdx.org/licenses/Unlicense'),
    ('wtfpl', 'permissive', 'https://spdx.org/licenses/WTFPL'),
    ('cc0-1.0', 'permissive', 'https://creativecommons.org/publicdomain/zero/1.0/'),
    ('cc-by-2.0', 'permissive', 'https://creativecommons.org/licenses/by/2.0/'),
    ('cc-by-3.0', 'permissive', 'https://creativecommons.org/licenses/by/3.0/'),
    ('cc-by-4.0', 'permissive', 'https://creativecommons.org/licenses/by/4.0/'),
    ('cdla-permissive-2.0', 'permissive', 'https://cdla.dev/permissive-2-0/'),
    ('cc-by-sa-3.0', 'share-alike', 'https://creativecommons.org/licenses/by-sa/3.0/'),
    ('cc-by-sa-4.0', 'share-alike', 'https://creativecommons.org/licenses/by-sa/4.0/'),
    ('gpl-2.0', 'share-alike', 'https://spdx.org/licenses/GPL-2.0-only'),
    ('gpl-3.0', 'share-alike', 'https://spdx.org/licenses/GPL-3.0-only'),
    ('agpl-3.0', 'share-alike', 'https://spdx.org/licenses/AGPL-3.0-only'),
    ('lgpl-3.0', 'share-alike', 'https://spdx.org/licenses/LGPL-3.0-only'),
    ('mpl-2.0', 'share-alike', 'https://spdx.org/licenses/MPL-2.0'),
    ('osl-3.0', 'share-alike', 'https://spdx.org/licenses/OSL-3.0'),
    ('odbl', 'share-alike', 'https://opendatacommons.org/licenses/odbl/1-0/'),
    ('cc-by-nc-2.0', 'non-commercial', 'https://creativecommons.org/licenses/by-nc/2.0/'),
    ('cc-by-nc-3.0', 'non-commercial', 'https://creativecommons.org/licenses/by-nc/3.0/'),
    ('cc-by-nc-4.0', 'non-commercial', 'https://creativecommons.org/licenses/by-nc/4.0/'),
    ('cc-by-nc-sa-3.0', 'non-commercial', 'https://creativecommons.org/licenses/by-nc-sa/3.0/'),
    ('cc-by-nc-sa-3.0', 'share-alike', 'https://creativecommons.org/licenses/by-nc-sa/3.0/'),
    ('cc-by-nc-sa-4.0', 'non-commercial', 'https://creativecommons.org/licenses/by-nc-sa/4.0/'),
    ('cc-by-nc-sa-4.0', 'share-alike', 'https://creativecommons.org/licenses/by-nc-sa/4.0/'),
    ('cc-by-nc-nd-3.0', 'non-commercial', 'https://creativecommons.org/licenses/by-nc-nd/3.0/'),
    ('cc-by-nc-nd-3.0', 'no derivatives', 'https://creativecommons.org/licenses/by-nc-nd/3.0/'),
    ('cc-by-nc-nd-4.0', 'non-commercial', 'https://creativecommons.org/licenses/by-nc-nd/4.0/'),
    ('cc-by-nc-nd-4.0', 'no derivatives', 'https://creativecommons.org/licenses/by-nc-nd/4.0/'),
    ('cc-by-nd-4.0', 'no derivatives', 'https://creativecommons.org/licenses/by-nd/4.0/'),
    ('openrail', 'own terms', 'https://www.licenses.ai/'),
    ('openrail++', 'own terms', 'https://www.licenses.ai/'),
    ('creativeml-openrail-m', 'own terms', 'https://huggingface.co/spaces/CompVis/stable-diffusion-license'),
    ('bigscience-openrail-m', 'own terms', 'https://www.licenses.ai/'),
    ('bigscience-bloom-rail-1.0', 'own terms', 'https://huggingface.co/spaces/bigscience/license'),
    ('bigcode-openrail-m', 'own terms', 'https://huggingface.co/spaces/bigcode/bigcode-model-license-agreement'),
    ('llama2', 'own terms', 'https://ai.meta.com/llama/license/'),
    ('llama3', 'own terms', 'https://www.llama.com/llama3/license/'),
    ('llama3.1', 'own terms', 'https://www.llama.com/llama3_1/license/'),
    ('llama3.2', 'own terms', 'https://www.llama.com/llama3_2/license/'),
    ('llama3.3', 'own terms', 'https://www.llama.com/llama3_3/license/'),
    ('llama4', 'own terms', 'https://www.llama.com/llama4/license/'),
    ('gemma', 'own terms', 'https://ai.google.dev/gemma/terms')
) AS t(license, term, source);
COMMENT ON VIEW licence_terms IS 'What licences ask of models that are derived from others; a licence that is not here is unknown';

CREATE VIEW licence_rules AS
SELECT * FROM (VALUES
    ('non-commercial', 'a licence with the same term', 'allows no commercial use'),
    ('share-alike', 'the same licence', 'asks for the same licence'),
    ('no derivatives', 'nothing', 'allows no derived models to be shared'),
    ('own terms', 'the same licence', 'asks for its own terms to be passed on')
) AS t(term, kept_by, says);
COMMENT ON VIEW licence_rules IS 'By which licence a derived model keeps a term of its ancestor''s';

CREATE VIEW ancestors AS
WITH RECURSIVE parents AS (
    SELECT m.base AS family, m.id AS model, m.base AS parent FROM models m
    UNION SELECT m.base, m.id, p.id FROM models m JOIN models p ON lower(p.id) = lower(m.base_raw) AND p.id <> m.id
    UNION SELECT m.base, m.id, d.id FROM models m JOIN models d ON d.base = m.base AND d.id = m.duplicate_of
), walk(family, model, ancestor) AS (
    SELECT family, model, parent FROM parents
    UNION SELECT w.family, w.model, p.parent FROM walk w JOIN parents p ON p.model = w.ancestor
) SELECT DISTINCT family, model, ancestor FROM walk WHERE ancestor <> model;
COMMENT ON VIEW ancestors IS 'What each model descends from: the base, the models that cards name, the originals of copies, and theirs';

CREATE VIEW licence_conflicts AS
WITH licences AS (
    SELECT base AS name, license FROM families WHERE license IS NOT NULL
    UNION SELECT id, license FROM models WHERE license IS NOT NULL
), pairs AS (
    SELECT m.base, m.id AS model, lower(m.license) AS license, a.ancestor, lower(l.license) AS ancestor_license
    FROM models m JOIN ancestors a ON a.family = m.base AND a.model = m.id
    LEFT JOIN licences l ON l.name = a.ancestor
    WHERE m.status IN ('indexed', 'no-update')
), terms AS (
    SELECT p.*, t.term, r.says, t.source,
           p.license IN (SELECT license FROM licence_terms) AS is_known,
           CASE r.kept_by
               WHEN 'the same licence' THEN p.license = p.ancestor_license
               WHEN 'nothing' THEN false
               ELSE EXISTS (SELECT 1 FROM licence_terms o WHERE o.license = p.license AND o.term = t.term)
           END AS is_kept
    FROM pairs p LEFT JOIN licence_terms t ON t.license = p.ancestor_license
    LEFT JOIN licence_rules r ON r.term = t.term
)
SELECT base, model, license, ancestor, ancestor_license, term, says, source,
       CASE WHEN term IS NULL THEN 'unknown'
            WHEN says IS NULL OR is_kept THEN 'kept'
            WHEN is_known THEN 'conflict'
            WHEN license IS NULL THEN 'unstated'
            ELSE 'unknown' END AS verdict
FROM terms ORDER BY base, model, ancestor, term;
COMMENT ON VIEW licence_conflicts IS 'Each model''s licence beside those of its ancestors, by `licence_rules`; no legal advice';
