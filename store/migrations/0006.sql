ALTER TABLE models ADD COLUMN verified VARCHAR;
UPDATE models SET verified = 'unverified' WHERE status = 'indexed';
COMMENT ON COLUMN models.verified IS 'How the weight files'' bytes were compared: `sha256`, `crc`, `unverified`; NULL where nothing is listed of them';
