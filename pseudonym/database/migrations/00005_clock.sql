-- +goose Up
-- How far time has come for what is deleted by its age. It follows the clocks of stores, and does not leap as they may.
CREATE TABLE clock (
	id BIGINT PRIMARY KEY, -- 1
	at BIGINT NOT NULL
);
CREATE INDEX pseudonyms_by_revocation ON pseudonyms (revoked) WHERE revoked <> 0;

-- +goose Down
DROP INDEX pseudonyms_by_revocation;
DROP TABLE clock;
