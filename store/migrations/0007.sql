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
