// Package pseudonym has world tests of pseudonyms: a cloud with two sites, its users, and an observer between them.
package pseudonym
