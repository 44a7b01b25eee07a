CREATE INDEX models_by_id ON models (id);

ALTER TABLE recipes ADD COLUMN share DOUBLE DEFAULT 1.0;
UPDATE recipes SET share = 1.0;
COMMENT ON COLUMN recipes.share IS 'Share of every layer matrix that its fingerprints saw, 0…1';
COMMENT ON COLUMN slots.recipe IS 'Whose sketch this is; a model has its slots once a recipe that keeps sketches';

CREATE VIEW slot_statistics AS
SELECT s.* FROM slots s LEFT JOIN recipes r ON r.id = s.recipe
QUALIFY dense_rank() OVER (PARTITION BY s.model ORDER BY coalesce(r.share, 1.0) DESC, s.recipe) = 1;
COMMENT ON VIEW slot_statistics IS 'The slots of each model once: as the fingerprint that saw most of it measured them';

CREATE OR REPLACE VIEW ranks AS
SELECT m.base, m.id AS model, s.stack, s.layer, s.role, s.relative_norm, s.stable_rank, s.energy
FROM slot_statistics s JOIN models m ON m.key = s.model
ORDER BY m.base, m.id, s.stack, s.layer, s.role;
