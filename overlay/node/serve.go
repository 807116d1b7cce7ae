package node

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/overlay/client"
)

// counts are a node's counters since its start.
type counts struct {
	flows, up, down atomic.Uint64

	mu      sync.Mutex
	refused map[client.Reason]uint64

	lines connlimit.Lines // of refusals
}

// refuse counts a refusal.
func (c *counts) refuse(why client.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[client.Reason]uint64{}
	}
	c.refused[why]++
}

// serve answers one request of a client that proved a key.
func (n *Node) serve(w http.ResponseWriter, r *http.Request) {
	answer, why := n.handle(w, r)
	if why != nil {
		n.refuse(w, r, why)
	} else if answer != nil {
		n.answer(w, answer)
	}
}

// handle returns the answer as JSON, or nil after a stream, which took the connection over.
func (n *Node) handle(w http.ResponseWriter, r *http.Request) (answer any, why *client.Refusal) {
	state := visitorOf(r).ConnectionState()
	holder, err := identity.PeerKey(state)
	if err != nil || state.NegotiatedProtocol != client.Protocol {
		return nil, &client.Refusal{Reason: client.ReasonRequest}
	}
	switch {
	case r.Method == http.MethodConnect:
		return nil, n.connect(w, r, holder)
	case r.Method == http.MethodGet && r.URL.Path == client.StatusURL:
		return n.status(r, holder)
	case r.Method == http.MethodPost && r.URL.Path == client.SurveyURL:
		return n.survey(w, r, holder)
	case r.URL.Path == client.NATURL:
		return n.nat(w, r, holder, "")
	case strings.HasPrefix(r.URL.Path, client.NATURL+"/"):
		return n.nat(w, r, holder, strings.TrimPrefix(r.URL.Path, client.NATURL+"/"))
	}
	return nil, &client.Refusal{Reason: client.ReasonRequest}
}

// refuse sends a refusal and ends the connection.
func (n *Node) refuse(w http.ResponseWriter, r *http.Request, why *client.Refusal) {
	n.refused(r, why)
	why.SetHeader(w.Header())
	w.Header().Set("Connection", "close")
	w.WriteHeader(why.Status())
}

// refused records a refusal.
func (n *Node) refused(r *http.Request, why *client.Refusal) *client.Refusal {
	why.At = n.o.now()
	n.counts.refuse(why.Reason)
	if n.counts.lines.Take(why.At) {
		n.log.Info("refused", "why", string(why.Reason), "from", r.RemoteAddr)
	}
	return why
}

// admit returns the account of a request's grant, or why not. An empty mode means any.
func (n *Node) admit(r *http.Request, holder identity.Key, mode string) (*account, *client.Refusal) {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr) // invalid behind a listener that is not TCP
	if !n.failures.Take(remote.Addr()) {
		return nil, &client.Refusal{Reason: client.ReasonBusy}
	}
	a, why := n.check(r.Header, holder)
	if why != nil && why.Status() == http.StatusProxyAuthRequired {
		return nil, why // counts as a failure of that source
	}
	n.failures.GiveBack(remote.Addr())
	if why != nil {
		return nil, why
	}
	proved(r)
	return a, n.permit(a, mode)
}

// check reads and verifies the grant in a request.
func (n *Node) check(h http.Header, holder identity.Key) (*account, *client.Refusal) {
	text := h.Get(client.GrantHeader)
	if text == "" {
		return nil, &client.Refusal{Reason: client.ReasonMissing}
	}
	signed, err := client.ParseGrant(text)
	if err != nil {
		return nil, &client.Refusal{Reason: client.ReasonMalformed, Detail: err.Error()}
	}
	if why := signed.Verify(client.Use{Now: n.o.now(), Node: n.key, Holder: holder, Grantors: n.o.Grantors}); why != nil {
		return nil, why
	}
	if n.revoked.holds(signed.Grant) {
		return nil, &client.Refusal{Reason: client.ReasonRevoked}
	}
	a := n.ledger.account(signed)
	if a == nil {
		return nil, &client.Refusal{Reason: client.ReasonBusy}
	}
	return a, nil
}

// permit checks that the node and the grant offer a mode, and that bytes are left.
func (n *Node) permit(a *account, mode string) *client.Refusal {
	switch {
	case mode == "":
		return nil
	case !n.offers(mode):
		return &client.Refusal{Reason: client.ReasonNoMode, Detail: mode}
	case !a.grant.Allows(mode):
		return &client.Refusal{Reason: client.ReasonMode, Detail: mode}
	case !a.left():
		return &client.Refusal{Reason: client.ReasonUsedUp}
	}
	return nil
}
