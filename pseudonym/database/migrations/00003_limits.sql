-- +goose Up
-- Proofs of work that were used, until they are too old to be used again.
CREATE TABLE spent (
	id      BYTEA  PRIMARY KEY,
	expires BIGINT NOT NULL
);

-- +goose Down
DROP TABLE spent;
