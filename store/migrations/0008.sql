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
ALTER TABLE families ADD COLUMN license VARCHAR;
COMMENT ON COLUMN families.license IS 'As the base''s card names it';

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
