package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"heddle/identity"
	"heddle/internal/errhint"
	"heddle/path"
)

// Where a node answers to requests that carry a grant; bodies are JSON.
const (
	StatusURL = "/v1/status" // GET: Status
	SurveyURL = "/v1/survey" // POST: SurveyRequest, to what the survey found
	NATURL    = "/v1/nat"    // POST: NATRequest, to NATLease; POST to NATURL/ID renews, DELETE releases
)

// Status is what a node says of itself. Who is no grantor of the node sees only the grant that was shown.
type Status struct {
	Name  string       `json:"name"`
	Key   identity.Key `json:"key"`
	Now   time.Time    `json:"now"`
	Since time.Time    `json:"since"`
	Modes []string     `json:"modes"`
	// Listen, Strangers, Flows, Up, Down and Refused are for grantors.
	Listen    string            `json:"listen,omitempty"`
	Strangers int               `json:"strangers,omitempty"` // connections that carry no stream, with or without a grant
	FlowsOpen int               `json:"flows_open,omitempty"`
	Flows     uint64            `json:"flows,omitempty"`
	Up        uint64            `json:"up,omitempty"` // bytes from holders to destinations
	Down      uint64            `json:"down,omitempty"`
	Refused   map[Reason]uint64 `json:"refused,omitempty"`
	Grants    []GrantStatus     `json:"grants"`
}

// GrantStatus is what became of a grant at one node.
type GrantStatus struct {
	ID     string       `json:"id"`
	Holder identity.Key `json:"holder"`
	From   time.Time    `json:"from"`
	Until  time.Time    `json:"until"`
	Modes  []string     `json:"modes"`
	To     []string     `json:"to,omitempty"`
	Bytes  int64        `json:"bytes,omitempty"` // 0 is no limit
	Used   int64        `json:"used"`            // bytes, both ways
	Flows  int          `json:"flows_open"`
}

// SurveyRequest asks for a measurement from the node towards a destination, ADDRESS:PORT.
type SurveyRequest struct {
	To netip.AddrPort `json:"to"`
}

// NATRequest asks the node's kernel to forward: what comes from the address that the request came from to a port of the
// node goes on to To, with the node's own address as its source.
type NATRequest struct {
	To netip.AddrPort `json:"to"`
	// Listen is the port wanted at the node, or 0 for any.
	Listen uint16 `json:"listen,omitempty"`
	// TTL is in how many seconds the lease ends unless it is renewed; the node may shorten it.
	TTL int `json:"ttl"`
}

// NATLease is a rule in a node's kernel that ends by itself.
type NATLease struct {
	ID string `json:"id"`
	// Client is whose packets are forwarded, as the node sees it.
	Client netip.Addr `json:"client"`
	// Listen is the node's port to connect to.
	Listen uint16         `json:"listen"`
	To     netip.AddrPort `json:"to"`
	Until  time.Time      `json:"until"`
}

// longestReply bounds, in bytes, what a node may answer.
const longestReply = 4 << 20

// Client asks a node about itself, and for what is no stream. It keeps one connection for a while.
type Client struct {
	reach *reach
	http  *http.Client
}

// New is for the holder of id. It reaches the node by base, or by this machine's own routes where that is nil.
func New(pass Pass, id identity.Identity, base path.Path) (*Client, error) {
	r, err := newReach(pass, id, base, "node "+pass.Name)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialTLSContext:  func(ctx context.Context, _, _ string) (net.Conn, error) { return r.connect(ctx) },
		IdleConnTimeout: 20 * time.Second, MaxResponseHeaderBytes: longestAnswer, DisableCompression: true,
	}
	return &Client{reach: r, http: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Close closes the connection, if there is one.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the node's status. Its words are a stranger's, and such as can be shown on a terminal.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.call(ctx, http.MethodGet, StatusURL, nil, &s)
	s.Name, s.Listen = spoken(s.Name), spoken(s.Listen)
	printableAll(s.Modes)
	for i := range s.Grants {
		g := &s.Grants[i]
		g.ID = spoken(g.ID)
		printableAll(g.Modes)
		printableAll(g.To)
	}
	return s, err
}

func printableAll(words []string) {
	for i, word := range words {
		words[i] = spoken(word)
	}
}

// Survey has the node measure its half of the way to a destination, which can take a minute.
func (c *Client) Survey(ctx context.Context, to netip.AddrPort) (found json.RawMessage, err error) {
	err = c.call(ctx, http.MethodPost, SurveyURL, SurveyRequest{to}, &found)
	return found, err
}

// Lease asks for a rule in the node's kernel.
func (c *Client) Lease(ctx context.Context, r NATRequest) (l NATLease, err error) {
	err = c.call(ctx, http.MethodPost, NATURL, r, &l)
	return l, err
}

// Renew has a lease end ttl from now.
func (c *Client) Renew(ctx context.Context, l NATLease, ttl time.Duration) (again NATLease, err error) {
	err = c.call(ctx, http.MethodPost, NATURL+"/"+l.ID, NATRequest{To: l.To, Listen: l.Listen, TTL: int(ttl / time.Second)}, &again)
	return again, err
}

// Release ends a lease.
func (c *Client) Release(ctx context.Context, l NATLease) error {
	return c.call(ctx, http.MethodDelete, NATURL+"/"+l.ID, nil, nil)
}

// call exchanges one request and its answer, each JSON or nil.
func (c *Client) call(ctx context.Context, method, url string, ask, answer any) error {
	var body io.Reader
	if ask != nil {
		text, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://node"+url, body)
	if err != nil {
		return err
	}
	if !c.reach.pass.Grant.IsZero() {
		request.Header.Set(GrantHeader, c.reach.pass.Grant.String())
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.problem("cannot be asked", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return c.problem("refuses", refusalOf(response.StatusCode, response.Header, time.Now()))
	}
	if answer == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, longestReply+1))
	if err == nil && len(text) > longestReply {
		err = fmt.Errorf("its answer is longer than %d bytes", longestReply)
	}
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return c.problem("answers what cannot be read", err)
	}
	return nil
}

func (c *Client) problem(why string, err error) error {
	if known, ok := errors.AsType[*path.Error](err); ok { // the node was not reached, which says it all
		return known
	}
	return &path.Error{What: c.reach.what, Why: why, Err: err, Hint: errhint.Of(err)}
}
