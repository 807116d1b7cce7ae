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

// Endpoints of a node for requests that carry a grant. Bodies are JSON.
const (
	StatusURL = "/v1/status" // GET: Status
	SurveyURL = "/v1/survey" // POST: SurveyRequest, returns what the survey found
	NATURL    = "/v1/nat"    // POST: NATRequest, returns NATLease; POST to NATURL/ID renews, DELETE releases
)

// Status is a node's status. Those who are not grantors of the node see only the grant that they showed.
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

// GrantStatus is the state of a grant at one node.
type GrantStatus struct {
	ID     string       `json:"id"`
	Holder identity.Key `json:"holder"`
	From   time.Time    `json:"from"`
	Until  time.Time    `json:"until"`
	Modes  []string     `json:"modes"`
	To     []string     `json:"to,omitempty"`
	Bytes  int64        `json:"bytes,omitempty"` // 0 means no limit
	Used   int64        `json:"used"`            // bytes, both ways
	Flows  int          `json:"flows_open"`
}

// SurveyRequest asks for a measurement from the node towards a destination, ADDRESS:PORT.
type SurveyRequest struct {
	To netip.AddrPort `json:"to"`
}

// NATRequest asks a node's kernel to forward packets from the requester's address to a node's port on to To, with the node's
// address as their source.
type NATRequest struct {
	To     netip.AddrPort `json:"to"`
	Listen uint16         `json:"listen,omitempty"` // port wanted at the node, or 0 for any
	TTL    int            `json:"ttl"`              // lifetime without renewal in seconds; the node may shorten it
}

// NATLease is a forwarding rule in a node's kernel. It expires by itself.
type NATLease struct {
	ID     string         `json:"id"`
	Client netip.Addr     `json:"client"` // source address of the packets, as the node sees it
	Listen uint16         `json:"listen"` // the node's port to connect to
	To     netip.AddrPort `json:"to"`
	Until  time.Time      `json:"until"`
}

// longestReply bounds a node's reply, in bytes.
const longestReply = 4 << 20

// Client queries a node's status and makes requests without a stream. It keeps one connection for a while.
type Client struct {
	reach *reach
	http  *http.Client
}

// New returns a client for the holder of id. It reaches the node by base; nil means this machine's own routes.
func New(pass Pass, id identity.Identity, base path.Path) (*Client, error) {
	r, err := newReach(pass, id, path.Options{Base: base}, "node "+pass.Name)
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

// Status queries the node's status. Its words come from a stranger, made safe for a terminal.
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

// Survey makes the node measure its half of the path to a destination. This can take a minute.
func (c *Client) Survey(ctx context.Context, to netip.AddrPort) (found json.RawMessage, err error) {
	err = c.call(ctx, http.MethodPost, SurveyURL, SurveyRequest{to}, &found)
	return found, err
}

// Lease requests a rule in the node's kernel.
func (c *Client) Lease(ctx context.Context, r NATRequest) (l NATLease, err error) {
	err = c.call(ctx, http.MethodPost, NATURL, r, &l)
	return l, err
}

// Renew makes a lease end ttl from now.
func (c *Client) Renew(ctx context.Context, l NATLease, ttl time.Duration) (again NATLease, err error) {
	err = c.call(ctx, http.MethodPost, NATURL+"/"+l.ID, NATRequest{To: l.To, Listen: l.Listen, TTL: int(ttl / time.Second)}, &again)
	return again, err
}

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
