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

CREATE VIEW study_results AS
SELECT m.base, m.id AS model, s.study, s.settings, s.results, s.made_at
FROM studies s JOIN models m ON m.key = s.model ORDER BY m.base, m.id, s.study, s.made_at;
COMMENT ON VIEW study_results IS 'Every study by the name of its model';
