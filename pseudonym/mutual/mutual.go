// Package mutual is the server's end of TLS for pseudonyms: each name has its own certificate and admits one client, by the key of
// that client's certificate (requirements R3 and R4 of the paper).
package mutual

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// Entry is what a server needs to know of a pseudonym.
type Entry struct {
	Label      pseudonym.Label      `json:"label"`
	Site       string               `json:"site"`
	Capability pseudonym.Capability `json:"capability"`
	Client     ca.KeyID             `json:"client"`
	Expires    time.Time            `json:"expires"`
	Chain      [][]byte             `json:"chain"` // of the server's certificate, in DER
	Key        []byte               `json:"key"`   // of the server, PKCS #8 in DER
}

// Source knows pseudonyms.
type Source interface {
	// Pseudonym fails with [pseudonym.ErrNone] for a label that may not be used, or is not for this server.
	Pseudonym(ctx context.Context, l pseudonym.Label) (*Entry, error)
}

// DefaultSize is how many pseudonyms a server keeps in memory, some 4 kB each.
const DefaultSize = 10_000

// lookFor bounds the question to the source.
const lookFor = 5 * time.Second

// Server has the certificates of pseudonyms. It loads them when they are asked for.
type Server struct {
	zone   pseudonym.Zone
	source Source
	next   []string
	cache  *lru.Cache[pseudonym.Label, *loaded]
	loads  singleflight.Group

	mu    sync.Mutex
	conns map[pseudonym.Label]map[*held]bool
	age   uint64 // counts what was forgotten
}

// loaded is an entry that is ready for use.
type loaded struct {
	*Entry
	config *tls.Config
}

// NewServer keeps so many pseudonyms in memory. next are the protocols of ALPN.
func NewServer(zone pseudonym.Zone, source Source, size int, next ...string) (*Server, error) {
	cache, err := lru.New[pseudonym.Label, *loaded](size)
	if err != nil {
		return nil, err
	}
	return &Server{zone: zone, source: source, next: next, cache: cache, conns: map[pseudonym.Label]map[*held]bool{}}, nil
}

var errName = errors.New("the name is no pseudonym of this server")

// Config returns the configuration of the server's TLS. Handshakes with other names than pseudonyms fail.
func (s *Server) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		l, ok := s.zone.Label(h.ServerName)
		if !ok {
			return nil, errName
		}
		one, err := s.load(h.Context(), l)
		if err != nil {
			return nil, errName // the client does not learn whether the database is gone
		}
		return one.config, nil
	}}
}

// Pseudonym returns the pseudonym of a connection. It fails with [pseudonym.ErrNone] once that may not be used any more.
func (s *Server) Pseudonym(ctx context.Context, c tls.ConnectionState) (*Entry, error) {
	l, ok := s.zone.Label(c.ServerName)
	if !ok {
		return nil, pseudonym.ErrNone
	}
	one, err := s.load(ctx, l)
	if err != nil {
		return nil, err
	}
	return one.Entry, nil
}

// load finds a pseudonym in memory or at the source.
func (s *Server) load(ctx context.Context, l pseudonym.Label) (*loaded, error) {
	if one, ok := s.cache.Get(l); ok {
		if time.Now().Before(one.Expires) {
			return one, nil
		}
		s.cache.Remove(l)
	}
	found, err, _ := s.loads.Do(string(l), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
		defer cancel()
		s.mu.Lock()
		age := s.age
		s.mu.Unlock()
		e, err := s.source.Pseudonym(ctx, l)
		if err != nil {
			return nil, err
		}
		if !time.Now().Before(e.Expires) {
			return nil, pseudonym.ErrNone
		}
		one, err := s.ready(e)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if age == s.age { // else the answer may be older than what was forgotten
			s.cache.Add(l, one)
		}
		return one, nil
	})
	if err != nil {
		return nil, err
	}
	return found.(*loaded), nil
}

// ready makes the TLS configuration of one pseudonym.
func (s *Server) ready(e *Entry) (*loaded, error) {
	key, err := x509.ParsePKCS8PrivateKey(e.Key)
	if err != nil {
		return nil, err
	}
	// The server names the issuer that it wants: a client's certificate has the pseudonym as its own issuer, or the zone if a browser
	// got it for all that is the cloud's own.
	issuers := []string{s.zone.Name(e.Label)}
	if e.Site == s.zone.Store() {
		issuers = append(issuers, string(s.zone))
	}
	clients, err := Issuers(issuers...)
	if err != nil {
		return nil, err
	}
	one := &loaded{Entry: e}
	one.config = &tls.Config{MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true /* as other servers */, NextProtos: s.next, ClientAuth: tls.RequireAnyClientCert, ClientCAs: clients,
		Certificates: []tls.Certificate{{Certificate: e.Chain, PrivateKey: key}},
		// It is asked for resumed sessions too.
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 || ca.KeyOf(c.PeerCertificates[0]) != e.Client {
				return errors.New("the client's certificate is not that of the pseudonym")
			}
			return nil
		}}
	return one, nil
}

// Issuers are what a server names when it asks for a client's certificate, by their common names.
func Issuers(names ...string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, name := range names {
		der, err := asn1.Marshal(pkix.Name{CommonName: name}.ToRDNSequence())
		if err != nil {
			return nil, err
		}
		pool.AddCert(&x509.Certificate{Raw: der, RawSubject: der})
	}
	return pool, nil
}

// Forget drops what is known of a label, or of all if it is empty. It ends the connections of those that may not be used any more, once
// the source has said so.
func (s *Server) Forget(ctx context.Context, l pseudonym.Label) {
	s.mu.Lock()
	s.age++
	var open []pseudonym.Label
	if l == "" {
		s.cache.Purge()
		for one := range s.conns {
			open = append(open, one)
		}
	} else {
		s.cache.Remove(l)
		if s.conns[l] != nil {
			open = append(open, l)
		}
	}
	s.mu.Unlock()
	if len(open) > 0 {
		go s.recheck(ctx, open)
	}
}

// questions bounds how many labels the source is asked for at a time.
const questions = 32

func (s *Server) recheck(ctx context.Context, open []pseudonym.Label) {
	var all errgroup.Group
	all.SetLimit(questions)
	for _, l := range open {
		all.Go(func() error {
			if _, err := s.load(ctx, l); errors.Is(err, pseudonym.ErrNone) {
				s.end(l)
			}
			return nil
		})
	}
	_ = all.Wait()
}

// end closes the connections of a label.
func (s *Server) end(l pseudonym.Label) {
	s.mu.Lock()
	open := s.conns[l]
	delete(s.conns, l)
	s.mu.Unlock()
	for h := range open {
		h.Close()
	}
}
