-- +goose Up
-- The time that stores counted while they ran, in seconds since 1970. There is one row at most.
CREATE TABLE clock (
	id      BIGINT PRIMARY KEY CHECK (id = 1),
	counted BIGINT NOT NULL
);
INSERT INTO clock (id, counted) SELECT 1, max(created) FROM pseudonyms HAVING count(*) > 0;
-- Few pseudonyms are revoked, so the index leaves out the others.
CREATE INDEX pseudonyms_by_revocation ON pseudonyms (revoked) WHERE revoked <> 0;

-- +goose Down
DROP INDEX pseudonyms_by_revocation;
DROP TABLE clock;
