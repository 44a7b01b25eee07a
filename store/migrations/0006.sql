ALTER TABLE meta ADD COLUMN catalog VARCHAR;
ALTER TABLE meta ADD COLUMN commits BIGINT DEFAULT 0;
UPDATE meta SET catalog = CAST(uuid() AS VARCHAR), commits = 0;
COMMENT ON COLUMN meta.catalog IS 'This file''s own name; a backup has another';
COMMENT ON COLUMN meta.commits IS 'How many transactions were committed; the commit log beside the file knows the last ones';
