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
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/recheck"
)

// Entry is what a server needs to know of a pseudonym.
type Entry struct {
	Label      pseudonym.Label      `json:"label"`
	Site       string               `json:"site"`
	Capability pseudonym.Capability `json:"capability"`
	Client     ca.KeyID             `json:"client"`
	Expires    time.Time            `json:"expires"`
	Left       int64                `json:"left_s,omitempty"` // until then in seconds, by the source's clock; 0 if that does not say
	Chain      [][]byte             `json:"chain"`            // of the server's certificate, in DER
	Key        []byte               `json:"key"`              // of the server, PKCS #8 in DER
}

// Source knows pseudonyms.
type Source interface {
	// Pseudonym fails with [pseudonym.ErrNone] for a label that may not be used, or is not for this server.
	// It fails with [ErrUnsure] if what was known may not stand in for an answer, and with another error if it may: the database is gone, where
	// nobody can revoke anything.
	Pseudonym(ctx context.Context, l pseudonym.Label) (*Entry, error)
}

// ErrUnsure says that nobody can say whether a pseudonym may be used.
var ErrUnsure = errors.New("no store answers")

// Hearer is a [Source] that learns of changes by a way that may break.
type Hearer interface {
	// Heard returns when it was last known that all changes arrive.
	Heard() time.Time
}

// Batcher is a [Source] that can be asked for many pseudonyms at once.
type Batcher interface {
	// Ended returns those of some labels that may not be used, or are not for this server.
	Ended(ctx context.Context, labels []pseudonym.Label) ([]pseudonym.Label, error)
}

// Keeper is a [Source] that knows some pseudonyms while it has no answer.
type Keeper interface {
	// Kept returns a pseudonym that the source knew when it had answers, or nil. The server takes it for one use, and asks again.
	Kept(l pseudonym.Label) *Entry
}

// DefaultSize is how many pseudonyms a server keeps in memory, some 4 kB each.
const DefaultSize = 10_000

// Times of questions to the source. With SureFor they bound how late a server learns of a revocation, whatever breaks.
const (
	lookFor = 3 * time.Second
	awayFor = time.Second // after one without an answer, if what is known may stand in, so that not each connection waits
	// SureFor is how long an answer holds without a sign that changes arrive.
	SureFor = 2 * time.Second
)

// Server has the certificates of pseudonyms. It loads them when they are asked for.
type Server struct {
	zone   pseudonym.Zone
	source Source
	next   []string
	cache  *lru.Cache[pseudonym.Label, *loaded]
	loads  singleflight.Group
	now    func() time.Time
	checks recheck.Checker

	mu    sync.Mutex
	conns map[pseudonym.Label]map[*held]bool
	age   uint64    // counts what was forgotten
	since time.Time // of the last change of any pseudonym: what was said before has to be asked for again
	away  time.Time // when the source had no answer and what is known stood in
}

// loaded is an entry that is ready for use.
type loaded struct {
	*Entry
	config *tls.Config
	asked  time.Time
	ends   time.Time // by the time that passes, and not by a clock that somebody sets
}

// NewServer keeps so many pseudonyms in memory. next are the protocols of ALPN.
func NewServer(zone pseudonym.Zone, source Source, size int, next ...string) (*Server, error) {
	cache, err := lru.New[pseudonym.Label, *loaded](size)
	if err != nil {
		return nil, err
	}
	s := &Server{zone: zone, source: source, next: next, cache: cache, now: time.Now, conns: map[pseudonym.Label]map[*held]bool{}}
	s.checks = recheck.Checker{Ended: s.ended, End: s.end, Open: func(l pseudonym.Label) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.conns[l] != nil
	}}
	return s, nil
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
	now := s.now()
	before, ok := s.cache.Get(l)
	if ok && !now.Before(before.ends) {
		s.cache.Remove(l)
		ok = false
	}
	age, holds, away := s.state(before, ok, now)
	if holds || ok && away {
		return before, nil
	}
	if away {
		if one := s.kept(l, now); one != nil {
			return one, nil
		}
	}
	// Whoever asks after a change does not take an answer to a question of before.
	found, err, _ := s.loads.Do(fmt.Sprint(age, " ", l), func() (any, error) { return s.ask(ctx, l, age) })
	if err == nil {
		return found.(*loaded), nil
	}
	if !errors.Is(err, pseudonym.ErrNone) && !errors.Is(err, ErrUnsure) {
		if s.standsIn(before, now) {
			return before, nil
		}
		if one := s.kept(l, now); one != nil {
			return one, nil
		}
	}
	return nil, err
}

// kept returns what the source knew of a pseudonym, or nil.
func (s *Server) kept(l pseudonym.Label, now time.Time) *loaded {
	keeper, ok := s.source.(Keeper)
	if !ok {
		return nil
	}
	e := keeper.Kept(l)
	if e == nil || !now.Before(e.Expires) {
		return nil
	}
	one, err := s.ready(e)
	if err != nil {
		return nil
	}
	one.asked, one.ends = now, now.Add(e.Expires.Sub(now))
	return one
}

// state returns how much was forgotten so far, whether what is known holds, and whether the source had no answer a moment ago.
func (s *Server) state(known *loaded, ok bool, now time.Time) (age uint64, holds, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds = ok && known.asked.After(s.since)
	if hearer, is := s.source.(Hearer); is && holds {
		holds = now.Sub(hearer.Heard()) < SureFor || now.Sub(known.asked) < SureFor
	}
	return s.age, holds, now.Sub(s.away) < awayFor
}

// standsIn notes that the source has no answer. It reports whether something was known, and is still there: it may have been forgotten during the question.
func (s *Server) standsIn(before *loaded, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = now
	if before == nil {
		return false
	}
	known, ok := s.cache.Peek(before.Label)
	return ok && known == before
}

// ask asks the source, and keeps the answer.
func (s *Server) ask(ctx context.Context, l pseudonym.Label, age uint64) (*loaded, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
	defer cancel()
	asked := s.now()
	e, err := s.source.Pseudonym(ctx, l)
	if errors.Is(err, pseudonym.ErrNone) {
		s.cache.Remove(l)
	}
	if err != nil {
		return nil, err
	}
	one, err := s.ready(e)
	if err != nil {
		return nil, err
	}
	left := time.Duration(e.Left) * time.Second
	if left == 0 {
		left = e.Expires.Sub(asked)
	}
	one.asked, one.ends = asked, asked.Add(left)
	if !s.now().Before(one.ends) {
		return nil, pseudonym.ErrNone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = time.Time{}
	if age == s.age { // else the answer may be older than what was forgotten
		s.cache.Add(l, one)
	}
	return one, nil
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

// Forget drops what is known of a label; or if it is empty has the source asked for all of them again. It ends the connections of those that may not be
// used any more, once the source has said so.
func (s *Server) Forget(ctx context.Context, l pseudonym.Label) {
	s.mu.Lock()
	s.age++
	var open []pseudonym.Label
	if l == "" {
		s.since, s.away = s.now(), time.Time{}
		for one := range s.conns {
			open = append(open, one)
		}
	} else {
		s.cache.Remove(l)
		open = append(open, l)
	}
	s.mu.Unlock()
	s.checks.Check(ctx, open...)
}

// questions bounds how many labels a source is asked for at a time that can be asked for one only.
const questions = 32

// ended implements [recheck.Checker].
func (s *Server) ended(ctx context.Context, labels []pseudonym.Label) (ended []pseudonym.Label, err error) {
	if b, ok := s.source.(Batcher); ok {
		return b.Ended(ctx, labels)
	}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(questions)
	for _, l := range labels {
		all.Go(func() error {
			_, err := s.source.Pseudonym(ctx, l)
			if !errors.Is(err, pseudonym.ErrNone) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, l)
			return nil
		})
	}
	err = all.Wait()
	return ended, err
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
