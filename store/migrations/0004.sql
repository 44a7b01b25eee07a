ALTER TABLE slots ADD COLUMN zero_share DOUBLE;
COMMENT ON COLUMN slots.zero_share IS 'Share of the update''s entries that are exactly 0, 0…1; NULL where it was not counted';
COMMENT ON COLUMN slots.sketch IS 'Features of the update under `recipe`: float16, little-endian, of version 2; codes of two bits of version 3';

CREATE OR REPLACE VIEW slot_statistics AS
SELECT s.* FROM slots s LEFT JOIN recipes r ON r.id = s.recipe
QUALIFY dense_rank() OVER (
    PARTITION BY s.model ORDER BY coalesce(r.share, 1.0) DESC, r.version DESC NULLS LAST, s.recipe) = 1;
COMMENT ON VIEW slot_statistics IS 'The slots of each model once: as the fingerprint that saw most of it measured them';

CREATE OR REPLACE VIEW ranks AS
SELECT m.base, m.id AS model, s.stack, s.layer, s.role, s.relative_norm, s.stable_rank, s.energy, s.zero_share
FROM slot_statistics s JOIN models m ON m.key = s.model
ORDER BY m.base, m.id, s.stack, s.layer, s.role;

CREATE TABLE linear_sketches (
    model BIGINT NOT NULL,
    recipe VARCHAR NOT NULL,
    stack VARCHAR,
    layer INTEGER,
    numbers FLOAT[] NOT NULL
);
COMMENT ON TABLE linear_sketches IS 'CountSketches of a model''s updates, linear and not normalised: one row a layer, one of all layers';
COMMENT ON COLUMN linear_sketches.layer IS 'NULL of the sketch of all layers, which has 1,024 numbers; a layer''s has 256';
