-- +goose Up
-- Whoever reads what is new of a site reads no more than that.
CREATE INDEX pseudonyms_by_creation ON pseudonyms (site, created);
DROP INDEX pseudonyms_by_site;

-- +goose Down
CREATE INDEX pseudonyms_by_site ON pseudonyms (site);
DROP INDEX pseudonyms_by_creation;
