// Package client gets pseudonyms from a store, and keeps what a user needs for them in files. Keys never leave the machine.
package client

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/text"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/store"
	"heddle/pseudonym/work"
)

// Options say where a store is.
type Options struct {
	Zone pseudonym.Zone
	// Roots are who may sign the store's certificate; nil are those of the system.
	Roots   *x509.CertPool
	Connect string // HOST:PORT instead of what the zone's nameservers say; for tests, and for clouds that are not in DNS yet
	Dir     string // of the files of this zone
	// Login asks a person for the code that a page of the store shows once she has logged in. It is called where a cloud needs accounts.
	Login func(ctx context.Context, page string) (code string, err error)
}

// Client is a user of a store.
type Client struct {
	o    Options
	own  *Saved // pseudonym of the store; nil before the first one
	code string // of the person who logged in
}

// patience bounds a request.
const patience = 20 * time.Second

// mostAnswer is the size of an answer in bytes.
const mostAnswer = 1 << 20

// New returns a client. It reads the pseudonym of the store, if there is one.
func New(o Options) (*Client, error) {
	c := &Client{o: o}
	own, err := Load(o.Dir, c.o.Zone.Store())
	if errors.Is(err, ErrNotSaved) {
		return c, nil
	}
	c.own = own
	return c, err
}

// Get registers a pseudonym of a site and saves it. Before the first one it gets one of the store, so that no later visit to the
// store shows its name.
func (c *Client) Get(ctx context.Context, site string) (*Saved, error) {
	site, err := pseudonym.ParseHost(site)
	if err != nil {
		return nil, err
	}
	if _, err := Load(c.o.Dir, site); !errors.Is(err, ErrNotSaved) {
		if err == nil {
			err = &errhint.Error{What: site, Why: "you have a pseudonym of it already", Hint: "heddle pseudonym list shows it; revoke it to get another one"}
		}
		return nil, err
	}
	if c.own == nil {
		if c.own, err = c.register(ctx, c.o.Zone.Store()); err != nil {
			return nil, err
		}
	}
	if site == c.o.Zone.Store() {
		return c.own, nil
	}
	return c.register(ctx, site)
}

// GetNSS puts the pseudonyms of a site and of the store into an NSS database, see [Saved.WriteNSS]. It gets those that are not there.
func (c *Client) GetNSS(ctx context.Context, site, dir string) (*Saved, error) {
	if err := NSSTools(); err != nil { // before anything is registered
		return nil, err
	}
	s, err := c.saved(site)
	if errors.Is(err, ErrNotSaved) {
		s, err = c.Get(ctx, site)
	}
	if err != nil {
		return nil, err
	}
	if c.own != nil && c.own.Site != s.Site { // for links between sites
		if err := c.own.WriteNSS(ctx, c.o.Zone, dir); err != nil {
			return nil, err
		}
	}
	return s, s.WriteNSS(ctx, c.o.Zone, dir)
}

func (c *Client) register(ctx context.Context, site string) (*Saved, error) {
	key, err := ca.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	var made store.Registration
	if err := c.admitted(ctx, store.Request{Site: site, Request: request}, &made); err != nil {
		return nil, err
	}
	if made.Site != site {
		return nil, &errhint.Error{What: "the store", Why: "it gave a pseudonym of another site than was asked for"}
	}
	return save(c.o.Dir, c.o.Zone, made, key)
}

// mostWork bounds the computing for one registration.
const mostWork = 10 * time.Minute

// admitted asks for a pseudonym, and does what the store wants of a stranger before: a proof of work, or a login.
func (c *Client) admitted(ctx context.Context, q store.Request, made *store.Registration) error {
	const path = "/v1/pseudonyms"
	err := c.ask(ctx, http.MethodPost, path, q, made)
	var r *refusal
	switch {
	case !errors.As(err, &r):
		return err
	case r.problem.Work != nil:
		solving, cancel := context.WithTimeout(ctx, mostWork)
		defer cancel()
		answer, err := work.Solve(solving, *r.problem.Work)
		if err != nil {
			return &errhint.Error{What: "the store", Why: "its proof of work cannot be made", Hint: "try again later", Err: err}
		}
		q.Proof = &store.Proof{Puzzle: r.problem.Work.Text, Answer: answer}
	case r.problem.Login != "" && c.o.Login != nil:
		if !strings.HasPrefix(r.problem.Login, "https://"+c.o.Zone.Store()+"/") {
			return &errhint.Error{What: "the store", Why: "it leads to a login elsewhere"}
		}
		code, err := c.o.Login(ctx, text.Printable(r.problem.Login))
		if err != nil {
			return err
		}
		c.code = strings.TrimSpace(code)
	default:
		return err
	}
	return c.ask(ctx, http.MethodPost, path, q, made)
}

type hinted = errhint.Error

// refusal is an answer of the store that says no.
type refusal struct {
	hinted
	problem store.Problem
}

// Unwrap returns what code can tell.
func (r *refusal) Unwrap() error { return r.Err }

// Renew lets the pseudonym of a site live on.
func (c *Client) Renew(ctx context.Context, site string) (*Saved, error) {
	s, err := c.saved(site)
	if err != nil {
		return nil, err
	}
	var made store.Registration
	if err := c.ask(ctx, http.MethodPost, "/v1/pseudonyms/"+s.Name+"/renew", nil, &made); err != nil {
		return nil, err
	}
	if made.Site != s.Site || made.Name != s.Name {
		return nil, &errhint.Error{What: "the store", Why: "it renewed another pseudonym than was asked for"}
	}
	made.Root = s.Root
	return save(c.o.Dir, c.o.Zone, made, s.key)
}

// Revoke ends the pseudonym of a site, and removes its files.
func (c *Client) Revoke(ctx context.Context, site string) error {
	s, err := c.saved(site)
	if err != nil {
		return err
	}
	err = c.ask(ctx, http.MethodDelete, "/v1/pseudonyms/"+s.Name, nil, &struct{}{})
	if err != nil && !errors.Is(err, pseudonym.ErrNone) {
		return err
	}
	return s.Remove()
}

func (c *Client) saved(site string) (*Saved, error) {
	site, err := pseudonym.ParseHost(site)
	if err != nil {
		return nil, err
	}
	return Load(c.o.Dir, site)
}

// ask sends a request to the store: by this user's pseudonym of it, or by its name before there is one.
func (c *Client) ask(ctx context.Context, method, path string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, config := &url.URL{Scheme: "https", Host: c.o.Zone.Store()}, &tls.Config{RootCAs: c.o.Roots, MinVersion: tls.VersionTLS13}
	if c.own != nil {
		var err error
		if at, err = url.Parse(c.own.URL); err != nil {
			return err
		}
		if config, err = c.own.TLS(); err != nil {
			return err
		}
	}
	at.Path = path
	var asked bytes.Buffer
	if question != nil {
		if err := json.NewEncoder(&asked).Encode(question); err != nil {
			return err
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, at.String(), &asked)
	if err != nil {
		return err
	}
	if c.code != "" && c.own == nil {
		q.Header.Set("Authorization", "Bearer "+c.code)
	}
	by := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer by.CloseIdleConnections()
	if c.o.Connect != "" {
		by.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, c.o.Connect)
		}
	}
	r, err := by.RoundTrip(q)
	if err != nil {
		return &errhint.Error{What: "the store", Why: "it cannot be reached", Hint: c.hint(err), Err: err}
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, mostAnswer))
	if err != nil {
		return err
	}
	if r.StatusCode/100 == 2 {
		return json.Unmarshal(body, answer)
	}
	var p store.Problem
	if json.Unmarshal(body, &p) != nil || p.Error == "" {
		p.Error = "it answers " + r.Status
	}
	told := &refusal{hinted{What: "the store", Why: text.Printable(p.Error), Hint: text.Printable(p.Hint)}, p}
	if r.StatusCode == http.StatusNotFound {
		told.Err = pseudonym.ErrNone
	}
	return told
}

// hint says what helps where a store cannot be reached.
func (c *Client) hint(err error) string {
	var unknown x509.UnknownAuthorityError
	var op *net.OpError
	switch {
	case errors.As(err, &unknown):
		return "give the cloud's root certificate with --root FILE"
	case c.own != nil && !errors.Is(err, context.Canceled) && !(errors.As(err, &op) && op.Op == "dial"): // something was there, and ended the connection one way or another
		return "your pseudonym of the store may have ended, or the cloud's database does not answer: try again later"
	}
	return "check the zone, and whether its nameserver and gateway run"
}

// sign makes the certificate of a client's key for its pseudonym.
func sign(name string, key *ecdsa.PrivateKey, until time.Time) (*x509.Certificate, error) {
	return ca.Client(name, key, time.Now(), until)
}
