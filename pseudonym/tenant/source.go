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
	client *http.Client
	trusts []string
	log    *slog.Logger
	beats

	sites atomic.Pointer[map[string]bool] // of the cloud; nil before the store answered
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
	var dialer dial.Failover
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialFor)
		defer cancel()
		return dialer.Dial(ctx, stores)
	}
	return &source{base: "https://" + stores[0], trusts: trusts, log: log, beats: b, client: &http.Client{Transport: &http.Transport{TLSClientConfig: config,
		// A store whose machine is gone says nothing, so that the sidecar would ask it on. Its connection has to end before the sidecar asks again.
		DialContext: connect, ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: b.every, PingTimeout: b.silence / 2}, ResponseHeaderTimeout: b.silence, TLSHandshakeTimeout: b.silence}}}
}

func (s *source) get(ctx context.Context, path string) (*http.Response, error) {
	return s.ask(ctx, http.MethodGet, path, nil)
}

func (s *source) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return nil, err
	}
	r, err := s.client.Do(q)
	if err != nil {
		return nil, err
	}
	switch r.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return r, nil
	case http.StatusNotFound:
		err = pseudonym.ErrNone
	default:
		text, _ := io.ReadAll(io.LimitReader(r.Body, 200))
		err = fmt.Errorf("the store answers %s: %s", r.Status, text)
	}
	r.Body.Close()
	return nil, err
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
	r, err := s.ask(ctx, http.MethodPut, store.TrustsPath, bytes.NewReader(text))
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

// follow tells forget of changes until ctx ends. While the store is away it tells nothing: known pseudonyms stay usable.
func (s *source) follow(ctx context.Context, forget func(pseudonym.Label)) {
	for ctx.Err() == nil {
		err := s.followOnce(ctx, forget)
		if ctx.Err() == nil {
			s.log.Warn("the store does not tell of changes", "error", err)
			_ = netutil.Sleep(ctx, s.every)
		}
	}
}

func (s *source) followOnce(ctx context.Context, forget func(pseudonym.Label)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(s.silence, func() { cancel(errors.New("it is silent")) })
	defer silent.Stop()
	r, err := s.get(ctx, store.ChangesPath)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	forget("") // what changed before
	if err := errors.Join(s.trust(ctx), s.look(ctx)); err != nil {
		return err
	}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		silent.Reset(s.silence)
		var c store.Changed
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		if c.Label != nil {
			forget(*c.Label)
			if *c.Label == "" || *c.Label == pseudonym.Sites {
				if err := s.look(ctx); err != nil {
					return err
				}
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}
