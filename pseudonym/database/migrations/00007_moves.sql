-- +goose Up
-- Connections that switches lead to tenants, for other switches.
CREATE TABLE moves (
	client  TEXT   NOT NULL, -- ADDRESS:PORT
	gateway TEXT   NOT NULL,
	tenant  TEXT   NOT NULL,
	switch  TEXT   NOT NULL, -- that wrote it, another one after each start
	seen    BIGINT NOT NULL, -- seconds of the database's clock
	PRIMARY KEY (client, gateway)
);
CREATE INDEX moves_seen ON moves (seen);

-- +goose Down
DROP TABLE moves;
