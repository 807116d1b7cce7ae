package connectudp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"

	"heddle/path/masque"
	"heddle/proxy/users"
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

// userGate is the gate of a proxy that was given none: it lets the users of a file to the targets that are allowed.
type userGate struct{ Options }

// Admit is of [Gate].
func (g userGate) Admit(r *http.Request, host string, port uint16) (Admission, error) {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr) // none at a socket of other addresses
	name, err := g.Users.CheckHeader(remote.Addr(), r.Header)
	if errors.Is(err, users.ErrBusy) {
		return Admission{}, &refusal{err, http.StatusTooManyRequests, http.Header{"Retry-After": {"10"}}}
	}
	if err != nil {
		if !errors.Is(err, users.ErrNoCredential) { // which is not bounded, and so would fill the log
			g.Log.Info("wrong credentials", "from", remote.Addr())
		}
		return Admission{}, &refusal{err, http.StatusProxyAuthRequired, http.Header{"Proxy-Authenticate": {`Basic realm="heddle"`, `Bearer realm="heddle"`}}}
	}
	return Admission{User: name, Resolve: func(ctx context.Context) ([]netip.AddrPort, error) {
		addrs, err := g.lookup(ctx, host)
		var allowed []netip.AddrPort
		for _, a := range addrs {
			if to := netip.AddrPortFrom(a.Unmap(), port); g.Targets.Allowed(to) {
				allowed = append(allowed, to)
			}
		}
		return allowed, err
	}}, nil
}

// refusal is the [Refusal] of a userGate.
type refusal struct {
	error
	status int
	header http.Header
}

func (r *refusal) Status() int             { return r.status }
func (r *refusal) SetHeader(h http.Header) { maps.Copy(h, r.header) }

// letIn gives what a request is let in for, or answers why it is not.
func (p *Proxy) letIn(w http.ResponseWriter, r *http.Request) (let Admission, ok bool) {
	host, port, err := masque.ParseTarget(r.URL.EscapedPath())
	if err != nil {
		refuse(w, http.StatusBadRequest, "http_request_error")
		return let, false
	}
	of, ok := r.Context().Value(introductionKey{}).(*introduction)
	if !ok {
		of = &introduction{}
	}
	of.checks.Add(1)
	defer of.checks.Add(-1)
	if let, err = p.o.Gate.Admit(r, host, port); err != nil {
		p.counts.refusedAuth.Add(1)
		refuseFor(w, err, http.StatusForbidden, "http_request_denied")
		return let, false
	}
	of.known.Store(true)
	return let, true
}

// refuseFor answers as a [Refusal] has it, or else with a status, and why in the words of RFC 9209.
func refuseFor(w http.ResponseWriter, err error, status int, why string) {
	if known, ok := errors.AsType[Refusal](err); ok {
		known.SetHeader(w.Header())
		status = known.Status()
	}
	refuse(w, status, why)
}
