-- +goose Up
-- Keys that open encrypted ClientHellos (RFC 9849). Gateways alone can read the secrets.
CREATE TABLE hellos (
	number  BIGINT PRIMARY KEY, -- of the time in which it is the newest
	config  BYTEA  NOT NULL, -- public, for HTTPS records
	secret  BYTEA  NOT NULL, -- sealed with the key of gateways, and not with that of the database
	created BIGINT NOT NULL
);

-- +goose Down
DROP TABLE hellos;
