-- Times are seconds since 1970. Both SQLite and PostgreSQL take this text; a BYTEA of SQLite is a blob.
-- +goose Up
CREATE TABLE tenants (
	site    TEXT   PRIMARY KEY,
	address TEXT   NOT NULL, -- of its sidecar, HOST:PORT
	client  BYTEA  NOT NULL UNIQUE, -- SHA-256 of the key by which the sidecar asks the store
	created BIGINT NOT NULL
);
CREATE TABLE pseudonyms (
	label       TEXT   PRIMARY KEY,
	site        TEXT   NOT NULL REFERENCES tenants (site) ON DELETE CASCADE,
	owner       BYTEA  NOT NULL, -- the same for all pseudonyms of one person
	capability  BYTEA  NOT NULL,
	client      BYTEA  NOT NULL, -- SHA-256 of the client's key
	certificate BYTEA  NOT NULL, -- of the server, in DER
	secret      BYTEA  NOT NULL, -- its key, sealed
	created     BIGINT NOT NULL,
	expires     BIGINT NOT NULL,
	revoked     BIGINT NOT NULL DEFAULT 0 -- 0 is not
);
CREATE INDEX pseudonyms_by_owner ON pseudonyms (owner, site);
CREATE INDEX pseudonyms_by_site ON pseudonyms (site);
CREATE INDEX pseudonyms_by_end ON pseudonyms (expires);
-- What other processes with the same file learn from. PostgreSQL has LISTEN for that.
CREATE TABLE changes (
	id    BIGINT PRIMARY KEY,
	label TEXT   NOT NULL
);

-- +goose Down
DROP TABLE changes;
DROP TABLE pseudonyms;
DROP TABLE tenants;
