package connectudp

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync/atomic"

	"heddle/path/masque"
)

// Gate decides who may have a flow, and where to.
type Gate interface {
	// Admit says what a request is let in for. An error that is a [Refusal] says in the answer why it is not.
	Admit(r *http.Request, host string, port uint16) (Admission, error)
}

// Admission is what a client is let in for.
type Admission struct {
	// User names the client: flows of one user and session may share an exit.
	User string
	// Resolve gives the addresses of the target that the client may reach.
	Resolve func(ctx context.Context) ([]netip.AddrPort, error)
	// Carry is asked before each datagram of so many bytes, up to the target or down; a false ends the flow. It may be nil.
	Carry func(up bool, bytes int) bool
	// Ends ends the flow when it is done; nil where nothing but the flow itself does.
	Ends context.Context
	// Done is called when the flow has ended; it may be nil.
	Done func()
}

// Refusal is an error that knows how to answer.
type Refusal interface {
	error
	Status() int
	SetHeader(http.Header)
}

// letIn gives what a request is let in for, or answers why it is not.
func (p *Proxy) letIn(w http.ResponseWriter, r *http.Request) (Admission, bool) {
	let := Admission{}
	if p.o.Gate == nil {
		name, ok := p.authenticate(w, r)
		if !ok {
			return let, false
		}
		let.User = name
	}
	host, port, err := masque.ParseTarget(r.URL.EscapedPath())
	if err != nil {
		refuse(w, http.StatusBadRequest, "http_request_error")
		return let, false
	}
	if p.o.Gate == nil {
		let.Resolve = func(ctx context.Context) ([]netip.AddrPort, error) { return p.resolve(ctx, host, port) }
		return let, true
	}
	if let, err = p.o.Gate.Admit(r, host, port); err != nil {
		p.counts.refusedAuth.Add(1)
		p.refuseFor(w, err, http.StatusForbidden, "http_request_denied")
		return let, false
	}
	if known, ok := r.Context().Value(knownKey{}).(*atomic.Bool); ok {
		known.Store(true)
	}
	return let, true
}

// resolve gives the addresses of a host that the proxy forwards to.
func (p *Proxy) resolve(ctx context.Context, host string, port uint16) ([]netip.AddrPort, error) {
	addrs, err := p.lookup(ctx, host)
	var allowed []netip.AddrPort
	for _, a := range addrs {
		if to := netip.AddrPortFrom(a.Unmap(), port); p.o.Targets.Allowed(to) {
			allowed = append(allowed, to)
		}
	}
	return allowed, err
}

// refuseFor answers as a [Refusal] has it, or else with a status, and why in the words of RFC 9209.
func (p *Proxy) refuseFor(w http.ResponseWriter, err error, status int, why string) {
	if known, ok := errors.AsType[Refusal](err); ok {
		known.SetHeader(w.Header())
		status = known.Status()
	}
	refuse(w, status, why)
}
