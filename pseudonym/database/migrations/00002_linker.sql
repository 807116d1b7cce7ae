-- +goose Up
CREATE TABLE trusts (
	site     TEXT NOT NULL REFERENCES tenants (site) ON DELETE CASCADE,
	referrer TEXT NOT NULL, -- whose links may lead to pseudonyms of site
	PRIMARY KEY (site, referrer)
);
CREATE INDEX pseudonyms_by_client ON pseudonyms (client, site);

-- +goose Down
DROP INDEX pseudonyms_by_client;
DROP TABLE trusts;
