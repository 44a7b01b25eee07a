ALTER TABLE meta ADD COLUMN catalog VARCHAR;
ALTER TABLE meta ADD COLUMN commits BIGINT DEFAULT 0;
UPDATE meta SET catalog = CAST(uuid() AS VARCHAR), commits = 0;
COMMENT ON COLUMN meta.catalog IS 'This file''s own name; a backup has another';
COMMENT ON COLUMN meta.commits IS 'How many transactions were committed; the commit log beside the file knows the last ones';
ALTER TABLE models ADD COLUMN verified VARCHAR;
UPDATE models SET verified = 'unverified' WHERE status = 'indexed';
COMMENT ON COLUMN models.verified IS 'How the weight files'' bytes were compared: `sha256`, `crc`, `unverified`; NULL where nothing is listed of them';
