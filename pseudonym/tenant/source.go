// Package tenant is the sidecar in front of a tenant's server: it has the certificates of the tenant's pseudonyms, and admits their
// clients only.
package tenant

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/pseudonym"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/store"
)

// source asks the stores of the cloud.
type source struct {
	base   string // URL without a path
	stores []string
	dialer dial.Failover
	client *http.Client
	trusts []string
	log    *slog.Logger
	beats

	sites atomic.Pointer[map[string]bool] // of the cloud; nil before the store answered
	heard atomic.Pointer[time.Time]       // when a store said last that changes arrive
}

// Sizes of answers in bytes.
const (
	mostEntry = 64 << 10
	mostSites = 64 << 20
)

// beats are times of the stream of changes.
type beats struct {
	every   time.Duration // between two beats of a store, and before it is asked again
	silence time.Duration // after which a store is taken to be gone
}

var storeBeats = beats{store.BeatEvery, store.BeatFor}

// newSource returns one that asks the stores at some addresses, HOST:PORT. They are the same to it.
func newSource(stores []string, config *tls.Config, trusts []string, b beats, log *slog.Logger) *source {
	s := &source{base: "https://" + stores[0], stores: stores, trusts: trusts, log: log, beats: b}
	s.heard.Store(new(time.Time))
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: config, DialContext: s.connect, ForceAttemptHTTP2: true,
		// A store whose machine is gone says nothing, so that the sidecar would ask it on. Its connection has to end before the sidecar asks again. It also
		// ends if answers are late, as changes are then: between two beats the sidecar asks for one.
		HTTP2: &http.HTTP2Config{SendPingTimeout: b.every / 2, PingTimeout: b.silence / 2}, ResponseHeaderTimeout: b.silence, TLSHandshakeTimeout: b.silence}}
	return s
}

// storeConn is a connection to a store.
type storeConn struct {
	net.Conn
	at string
}

func (s *source) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	c, at, err := s.dialer.DialWhich(ctx, s.stores)
	if err != nil {
		return nil, err
	}
	return &storeConn{c, at}, nil
}

// Errors that a store answers with, and that there was no answer.
var (
	errLost     = errors.New("no answer came")
	errDatabase = errors.New("the store's database does not answer")
	errStranger = fmt.Errorf("the cloud does not know this tenant: %w", pseudonym.ErrNone)
)

func (s *source) get(ctx context.Context, path string) (*http.Response, error) {
	return s.ask(ctx, http.MethodGet, path, nil)
}

// ask asks a store; if that has no database, those that may have one.
func (s *source) ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	for lost := false; ; {
		r, by, err := s.askOne(ctx, method, path, body)
		switch {
		case errors.Is(err, errDatabase) && by != nil && s.dialer.Leave(by.at, s.stores):
			by.Close()
		case errors.Is(err, errLost) && !lost && ctx.Err() == nil: // such as by a question beside it
			lost = true
		default:
			return r, err
		}
	}
}

// askOne asks one store, and returns the connection by which it did.
func (s *source) askOne(ctx context.Context, method, path string, body []byte) (_ *http.Response, by *storeConn, _ error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if c, ok := i.Conn.(*tls.Conn); ok {
			by, _ = c.NetConn().(*storeConn)
		}
	}})
	q, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r, err := s.client.Do(q)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errLost, err)
	}
	switch r.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return r, by, nil
	case http.StatusNotFound:
		err = pseudonym.ErrNone
	case http.StatusForbidden:
		err = errStranger
	case http.StatusServiceUnavailable:
		err = errDatabase
	default:
		text, _ := io.ReadAll(io.LimitReader(r.Body, 200))
		err = fmt.Errorf("the store answers %s: %s", r.Status, text)
	}
	r.Body.Close()
	return nil, by, err
}

// trust tells the store whose links may lead to this site's pseudonyms.
func (s *source) trust(ctx context.Context) error {
	list := s.trusts
	if list == nil {
		list = []string{}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	r, err := s.ask(ctx, http.MethodPut, store.TrustsPath, text)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// look asks for the sites of the cloud.
func (s *source) look(ctx context.Context) error {
	r, err := s.get(ctx, store.SitesPath)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var all []string
	if err := json.NewDecoder(io.LimitReader(r.Body, mostSites)).Decode(&all); err != nil {
		return err
	}
	sites := map[string]bool{}
	for _, site := range all {
		sites[site] = true
	}
	s.sites.Store(&sites)
	return nil
}

// labels asks for the pseudonyms that were made at a time or later.
func (s *source) labels(ctx context.Context, since time.Time) (all []pseudonym.Label, err error) {
	r, err := s.get(ctx, store.ListPath(since))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	return all, json.NewDecoder(io.LimitReader(r.Body, mostSites)).Decode(&all)
}

// hosts reports whether the cloud has a site.
func (s *source) hosts(site string) bool {
	sites := s.sites.Load()
	return sites != nil && (*sites)[site]
}

// Pseudonym implements [mutual.Source]. Nobody visits before the sites are known: links to them would lead to their plain names.
func (s *source) Pseudonym(ctx context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	e, err := s.entry(ctx, l)
	return e, sure(err)
}

// sure is an error that says whether what was known may stand in: a store knows that nobody can revoke anything, or that nobody has the pseudonym. If no
// store answers, or not in time, one may have been revoked at another store.
func sure(err error) error {
	if err == nil || errors.Is(err, errDatabase) || errors.Is(err, pseudonym.ErrNone) {
		return err
	}
	return fmt.Errorf("%w: %w", mutual.ErrUnsure, err)
}

func (s *source) entry(ctx context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	if s.sites.Load() == nil {
		if err := s.look(ctx); err != nil {
			return nil, err
		}
	}
	r, err := s.get(ctx, store.EntryPath+string(l))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	e := &mutual.Entry{}
	return e, json.NewDecoder(io.LimitReader(r.Body, mostEntry)).Decode(e)
}

// Ended implements [mutual.Batcher].
func (s *source) Ended(ctx context.Context, labels []pseudonym.Label) (ended []pseudonym.Label, err error) {
	text, err := json.Marshal(labels)
	if err != nil {
		return nil, err
	}
	r, err := s.ask(ctx, http.MethodPost, store.EndedPath, text)
	if errors.Is(err, errStranger) {
		return labels, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	err = json.NewDecoder(io.LimitReader(r.Body, mostEntry)).Decode(&ended)
	return ended, err
}

// Heard implements [mutual.Hearer].
func (s *source) Heard() time.Time { return *s.heard.Load() }

func (s *source) hears() {
	now := time.Now()
	s.heard.Store(&now)
}

// follow tells forget of changes until ctx ends, and that there may have been some once a store does not tell of them any more.
func (s *source) follow(ctx context.Context, forget func(pseudonym.Label)) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := s.followOnce(ctx, forget)
		if ctx.Err() == nil {
			forget("")
			s.log.Warn("the store does not tell of changes", "error", err)
			_ = netutil.Sleep(ctx, s.every-time.Since(begin))
		}
	}
}

func (s *source) followOnce(ctx context.Context, forget func(pseudonym.Label)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var looks sync.WaitGroup
	defer looks.Wait()
	defer cancel(nil)
	silent := time.AfterFunc(s.silence, func() { cancel(errors.New("it is silent")) })
	defer silent.Stop()
	r, err := s.get(ctx, store.ChangesPath)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	s.hears()
	forget("") // what changed before
	if err := errors.Join(s.trust(ctx), s.look(ctx)); err != nil {
		return err
	}
	again := make(chan bool, 1)
	looks.Go(func() { s.lookAgain(ctx, again) })
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		silent.Reset(s.silence)
		s.hears()
		var c store.Changed
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		if c.Label != nil {
			forget(*c.Label)
			if *c.Label == "" || *c.Label == pseudonym.Sites {
				netutil.Offer(again, true)
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// lookAgain looks for the sites again, each time that it is told to. Changes do not wait for it.
func (s *source) lookAgain(ctx context.Context, again <-chan bool) {
	for {
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
		for s.look(ctx) != nil && netutil.Sleep(ctx, s.every) == nil {
		}
	}
}
