package cloud

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"heddle/internal/atomicfile"
	"heddle/internal/errhint"
	"heddle/internal/keyfile"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
)

// Files of a cloud, in one directory. The root's key is needed to renew the issuing certificate only, so it can be kept elsewhere.
const (
	RootKey     = "root-key.pem"
	Root        = "root.pem"
	IssuingKey  = "issuing-key.pem"
	Issuing     = "issuing.pem"
	DatabaseKey = "database.key" // seals the keys of servers in the database
	GatewayKey  = "gateway.key"  // seals there the keys that open encrypted ClientHellos; without it names are in clear
	AddressKey  = "address.key"  // seals there the keys of pseudo-addresses; switches and nameservers have it
	ZoneKey     = "zone-key.pem" // signs the zone; without it the zone is not signed
)

// Files returns the names of all files of a cloud's directory, but for its database.
func Files() []string {
	return []string{RootKey, Root, IssuingKey, Issuing, DatabaseKey, GatewayKey, AddressKey, ZoneKey}
}

// Optional reports whether a cloud works without a file.
func Optional(name string) bool {
	return name == RootKey || name == ZoneKey || name == GatewayKey || name == AddressKey
}

// Create makes the keys and certificates of a zone in a directory, and replaces none.
func Create(dir string, zone pseudonym.Zone, now time.Time) error {
	if err := begin(dir); err != nil {
		return err
	}
	key, err := ca.NewKey()
	if err != nil {
		return err
	}
	root, err := ca.NewRoot(key, string(zone), now)
	if err != nil {
		return err
	}
	issuing, err := ca.NewKey()
	if err != nil {
		return err
	}
	if err := errors.Join(keyfile.Create(filepath.Join(dir, RootKey), key), createKeys(dir, issuing)); err != nil {
		return err
	}
	if _, err := issue(dir, zone, issuing, root, key, now); err != nil {
		return err
	}
	return writeCertificates(filepath.Join(dir, Root), root) // last, so that an interrupted Create can be repeated after a look
}

func createSeal(dir, name string) error {
	key := make([]byte, database.SealKeySize)
	_, _ = rand.Read(key) // it never fails
	return atomicfile.CreatePrivate(filepath.Join(dir, name), key)
}

// Import is [Create] with an intermediate of the operator's own CA: its key, and its certificate with those that lead to the root.
func Import(dir string, zone pseudonym.Zone, keyFile, chainFile string, now time.Time) error {
	key, chain, err := readImport(zone, keyFile, chainFile, now)
	if err != nil {
		return err
	}
	if err := begin(dir); err != nil {
		return err
	}
	if err := createKeys(dir, key); err != nil {
		return err
	}
	if err := writeCertificates(filepath.Join(dir, Issuing), chain...); err != nil {
		return err
	}
	return writeCertificates(filepath.Join(dir, Root), chain[len(chain)-1])
}

// ImportRenewed replaces the intermediate by a new certificate of the same key, so that the certificates that it signed stay good. It
// returns when the new one ends.
func ImportRenewed(dir string, zone pseudonym.Zone, keyFile, chainFile string, now time.Time) (until time.Time, err error) {
	key, chain, err := readImport(zone, keyFile, chainFile, now)
	if err != nil {
		return until, err
	}
	old, err := readKey(dir, IssuingKey, "import into the directory of the cloud")
	if err != nil {
		return until, err
	}
	before, err := readCertificates(filepath.Join(dir, Root))
	if err != nil {
		return until, err
	}
	refuse := func(why, hint string) error {
		return &errhint.Error{What: "the intermediate " + chainFile, Why: why, Hint: hint}
	}
	switch {
	case !old.Equal(key):
		return until, refuse("its key is another one, so all pseudonyms would stop working", "have the CA sign the key of before again: "+filepath.Join(dir, IssuingKey))
	case !before[0].Equal(chain[len(chain)-1]):
		return until, refuse("its root is another one, which users do not trust", "make a new cloud for another root")
	}
	return chain[0].NotAfter, writeCertificates(filepath.Join(dir, Issuing), chain...)
}

func readImport(zone pseudonym.Zone, keyFile, chainFile string, now time.Time) (*ecdsa.PrivateKey, []*x509.Certificate, error) {
	key, problem := keyfile.Load[*ecdsa.PrivateKey](keyFile)
	if problem != nil {
		hint := cmp.Or(problem.Hint, "it has to be ECDSA, such as openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 makes; openssl pkcs8 -topk8 -nocrypt converts others of EC")
		return nil, nil, &errhint.Error{What: "the key " + keyFile, Why: problem.Why, Hint: hint, Err: problem.Err}
	}
	chain, err := readCertificates(chainFile)
	if err != nil {
		return nil, nil, err
	}
	return key, chain, ca.CheckImport(string(zone), key, chain, now)
}

// begin makes the directory of a new cloud.
func begin(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, Root)); err == nil {
		return &errhint.Error{What: "the cloud in " + dir, Why: "it has keys already", Hint: "--renew makes a new issuing certificate"}
	}
	return os.MkdirAll(dir, 0o700)
}

// createKeys makes the keys of a new cloud beside its issuing key.
func createKeys(dir string, issuing *ecdsa.PrivateKey) error {
	signing, err := ca.NewKey()
	if err != nil {
		return err
	}
	return errors.Join(keyfile.Create(filepath.Join(dir, IssuingKey), issuing), keyfile.Create(filepath.Join(dir, ZoneKey), signing),
		createSeal(dir, DatabaseKey), createSeal(dir, GatewayKey), createSeal(dir, AddressKey))
}

// Renew makes a new issuing certificate for the issuing key, so that the certificates that it signed stay good. It needs the root's
// key. It returns when the certificate ends. It also makes the keys of gateways and of addresses for a cloud of before there were any.
func Renew(dir string, zone pseudonym.Zone, now time.Time) (until time.Time, err error) {
	rootKey, err := readKey(dir, RootKey, "bring it back from where it is kept; or renew an imported intermediate with --import")
	if err != nil {
		return until, err
	}
	key, err := readKey(dir, IssuingKey, "without it make a new cloud")
	if err != nil {
		return until, err
	}
	chain, err := readCertificates(filepath.Join(dir, Root))
	if err != nil {
		return until, err
	}
	c, err := issue(dir, zone, key, chain[0], rootKey, now)
	if err != nil {
		return until, err
	}
	for _, name := range []string{GatewayKey, AddressKey} {
		if err := createSeal(dir, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return until, err
		}
	}
	return c.NotAfter, nil
}

func readKey(dir, name, hint string) (*ecdsa.PrivateKey, error) {
	key, problem := keyfile.Load[*ecdsa.PrivateKey](filepath.Join(dir, name))
	if problem == nil {
		return key, nil
	}
	if problem.Hint != "" {
		hint = problem.Hint
	}
	return nil, &errhint.Error{What: "the key " + filepath.Join(dir, name), Why: problem.Why, Hint: hint, Err: problem.Err}
}

// issue writes a certificate of the issuing key.
func issue(dir string, zone pseudonym.Zone, key *ecdsa.PrivateKey, root *x509.Certificate, rootKey *ecdsa.PrivateKey, now time.Time) (*x509.Certificate, error) {
	c, err := ca.NewIssuing(key.Public(), root, rootKey, string(zone), now)
	if err != nil {
		return nil, err
	}
	return c, writeCertificates(filepath.Join(dir, Issuing), c, root)
}

func writeCertificates(file string, all ...*x509.Certificate) error {
	var text []byte
	for _, c := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return atomicfile.Write(file, text, 0o644)
}

// readCertificates reads at least one.
func readCertificates(file string) (all []*x509.Certificate, err error) {
	refuse := func(why string, err error) ([]*x509.Certificate, error) {
		return nil, &errhint.Error{What: "the certificate " + file, Why: why, Hint: "heddle pseudonym init makes one", Err: err}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return refuse("it cannot be read", err)
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return refuse("it is damaged", err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return refuse("there is none in it", nil)
	}
	return all, nil
}

// readIssuer reads the issuing key with its chain, and the root for clients, which is the last of the chain.
func readIssuer(dir string, zone pseudonym.Zone, now time.Time) (issuer *ca.Issuer, root *x509.Certificate, err error) {
	key, err := readKey(dir, IssuingKey, "heddle pseudonym init makes one")
	if err != nil {
		return nil, nil, err
	}
	chain, err := readCertificates(filepath.Join(dir, Issuing))
	if err != nil {
		return nil, nil, err
	}
	issuer, err = ca.NewIssuer(string(zone), key, chain, now)
	return issuer, chain[len(chain)-1], err
}

// KeysUntil returns when the issuing certificate ends, or why the keys do not serve.
func KeysUntil(o Options, now time.Time) (time.Time, error) {
	issuer, _, err := readIssuer(o.Dir, o.Zone, now)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := readSeal(o.Dir); err != nil {
		return time.Time{}, err
	}
	return issuer.Until(), nil
}

// readZoneKey returns no key if there is none.
func readZoneKey(dir string) (*ecdsa.PrivateKey, error) {
	if _, err := os.Stat(filepath.Join(dir, ZoneKey)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return readKey(dir, ZoneKey, "remove it if the zone shall not be signed")
}

func readSeal(dir string) (*database.Seal, error) {
	s, err := readSealOf(dir, DatabaseKey)
	if err != nil {
		return nil, &errhint.Error{What: "the key of the database", Why: "it cannot be read", Hint: "bring " + DatabaseKey + " back: without it no pseudonym works", Err: err}
	}
	return s, nil
}

// readGatewaySeal returns none if there is no such file.
func readGatewaySeal(dir string) (*database.Seal, error) {
	s, err := readSealOf(dir, GatewayKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &errhint.Error{What: "the key of the gateways", Why: "it cannot be read", Hint: "copy " + GatewayKey + " from another gateway", Err: err}
	}
	return s, nil
}

func readSealOf(dir, name string) (*database.Seal, error) {
	key, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return database.NewSeal(key)
}
