package client

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/internal/atomicfile"
	"heddle/internal/errhint"
	"heddle/internal/keyfile"
	"heddle/pseudonym"
	"heddle/pseudonym/store"
)

// ErrNotSaved says that there are no files of a site.
var ErrNotSaved = errors.New("you have no pseudonym of it")

// Files of one pseudonym, in the directory of its site.
const (
	keyFile  = "key.pem"
	certFile = "cert.pem"
	rootFile = "root.pem"
	infoFile = "pseudonym.json"
)

// Saved is a pseudonym in files, as curl and others take them.
type Saved struct {
	store.Registration
	Dir string `json:"-"`
	key *ecdsa.PrivateKey
}

// check refuses what a hostile store could put into names of files, and into a command that a person copies.
func check(zone pseudonym.Zone, made store.Registration) error {
	refuse := func(why string) error { return &errhint.Error{What: "the store", Why: why} }
	if site, err := pseudonym.ParseHost(made.Site); err != nil || site != made.Site {
		return refuse(fmt.Sprintf("it gave the site %q, which is no host name", made.Site))
	}
	if l, ok := zone.Label(made.Name); !ok || zone.Name(l) != made.Name {
		return refuse(fmt.Sprintf("it gave the name %q, which is no pseudonym of %s", made.Name, zone))
	}
	query, ok := strings.CutPrefix(made.URL, "https://"+made.Name+"/?"+pseudonym.CapabilityKey+"=")
	var c pseudonym.Capability
	if !ok || c.UnmarshalText([]byte(query)) != nil || c.String() != query {
		return refuse(fmt.Sprintf("it gave the URL %q, which is none of a pseudonym", made.URL))
	}
	return nil
}

// save writes the files. The information is last: without it the rest counts for nothing.
func save(dir string, zone pseudonym.Zone, made store.Registration, key *ecdsa.PrivateKey) (*Saved, error) {
	if err := check(zone, made); err != nil {
		return nil, err
	}
	s := &Saved{made, filepath.Join(dir, made.Site), key}
	cert, err := sign(made.Name, key, made.Expires)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	err = keyfile.Create(s.file(keyFile), key)
	if errors.Is(err, fs.ErrExist) { // of a renewal, or of an interrupted registration
		if old, problem := keyfile.Load[*ecdsa.PrivateKey](s.file(keyFile)); problem != nil || !old.Equal(key) {
			err = errors.Join(os.Remove(s.file(keyFile)), keyfile.Create(s.file(keyFile), key))
		} else {
			err = nil
		}
	}
	return s, errors.Join(err, s.writePEM(certFile, cert.Raw), s.writePEM(rootFile, made.Root), atomicfile.WriteJSON(s.file(infoFile), made))
}

func (s *Saved) file(name string) string { return filepath.Join(s.Dir, name) }

// Key, Cert and Root are files in PEM.
func (s *Saved) Key() string      { return s.file(keyFile) }
func (s *Saved) Cert() string     { return s.file(certFile) }
func (s *Saved) RootFile() string { return s.file(rootFile) }

func (s *Saved) writePEM(name string, der []byte) error {
	return atomicfile.WritePrivate(s.file(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Load reads the pseudonym of a site. It fails with [ErrNotSaved].
func Load(dir, site string) (*Saved, error) {
	s := &Saved{Dir: filepath.Join(dir, site)}
	text, err := os.ReadFile(s.file(infoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &errhint.Error{What: site, Hint: "heddle pseudonym get " + site, Err: ErrNotSaved}
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &s.Registration); err != nil {
		return nil, &errhint.Error{What: s.file(infoFile), Why: "it is damaged", Hint: "remove " + s.Dir + " and get another pseudonym", Err: err}
	}
	key, problem := keyfile.Load[*ecdsa.PrivateKey](s.file(keyFile))
	if problem != nil {
		return nil, &errhint.Error{What: "the key of " + site, Why: problem.Why, Hint: problem.Hint, Err: problem.Err}
	}
	s.key = key
	return s, nil
}

// All returns the pseudonyms of a directory, by their sites.
func All(dir string) (all []*Saved, err error) {
	found, err := filepath.Glob(filepath.Join(dir, "*", infoFile))
	for _, file := range found {
		s, bad := Load(dir, filepath.Base(filepath.Dir(file)))
		if err = errors.Join(err, bad); bad == nil {
			all = append(all, s)
		}
	}
	return all, err
}

// Remove removes the files.
func (s *Saved) Remove() error { return os.RemoveAll(s.Dir) }

// TLS returns the configuration of a client of the pseudonym.
func (s *Saved) TLS() (*tls.Config, error) {
	cert, err := sign(s.Name, s.key, s.Expires)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(s.Root)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return &tls.Config{ServerName: s.Name, RootCAs: roots, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: s.key}}}, nil
}

// Ended reports whether a pseudonym has to be renewed.
func (s *Saved) Ended(now time.Time) bool { return !now.Before(s.Expires) }
