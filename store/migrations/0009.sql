ALTER TABLE models ADD COLUMN layers INTEGER;
ALTER TABLE models ADD COLUMN vocabulary INTEGER;
ALTER TABLE models ADD COLUMN dtype VARCHAR;
COMMENT ON COLUMN models.layers IS 'Layers of a full checkpoint, over all stacks; NULL of adapters, and of models that deltadex 0.2 or earlier indexed';
COMMENT ON COLUMN models.vocabulary IS 'Rows of its token embeddings; NULL where it has none, and as `layers`';
COMMENT ON COLUMN models.dtype IS 'The type that most of its layer matrices are stored in, as safetensors spells it; NULL as `layers`';
