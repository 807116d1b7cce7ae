-- +goose Up
-- Whether the tenant of a connection answers the client past the switch.
ALTER TABLE moves ADD COLUMN direct BOOLEAN NOT NULL DEFAULT FALSE;

-- +goose Down
ALTER TABLE moves DROP COLUMN direct;
