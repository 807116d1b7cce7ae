-- +goose Up
-- Keys of pseudo-addresses. Switches and nameservers alone can read the secrets.
CREATE TABLE address_keys (
	number  BIGINT PRIMARY KEY, -- of the day from which addresses are sealed with it
	secret  BYTEA  NOT NULL, -- sealed with the key of addresses, and not with that of the database
	created BIGINT NOT NULL
);
-- What stands for a site in its pseudo-addresses.
CREATE TABLE address_numbers (
	number BIGINT PRIMARY KEY CHECK (number > 0 AND number < 65536),
	site   TEXT   NOT NULL UNIQUE REFERENCES tenants (site) ON DELETE CASCADE
);

-- +goose Down
DROP TABLE address_numbers;
DROP TABLE address_keys;
