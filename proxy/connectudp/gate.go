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

// Gate decides who may have a flow, and to which target.
type Gate interface {
	// Admit decides on a request. If its error is a [Refusal], the answer tells the reason.
	Admit(r *http.Request, host string, port uint16) (Admission, error)
}

// Admission describes what a client may do.
type Admission struct {
	// User names the client. Flows of one user and session may share an exit.
	User string
	// Resolve returns the target's addresses that the client may reach.
	Resolve func(ctx context.Context) ([]netip.AddrPort, error)
	// Carry is called before each datagram in either direction with its size; false ends the flow. It may be nil.
	Carry func(up bool, bytes int) bool
	Ends  context.Context // ends the flow; may be nil
	Done  func()          // called when the flow has ended; may be nil
}

// Refusal is an error that determines the HTTP answer.
type Refusal interface {
	error
	Status() int
	SetHeader(http.Header)
}

// userGate is the default Gate: it admits the users of a file to the allowed targets.
type userGate struct{ Options }

func (g userGate) Admit(r *http.Request, host string, port uint16) (Admission, error) {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr) // invalid if the socket is not UDP
	name, err := g.Users.CheckHeader(remote.Addr(), r.Header)
	if errors.Is(err, users.ErrBusy) {
		return Admission{}, &refusal{err, http.StatusTooManyRequests, http.Header{"Retry-After": {"10"}}}
	}
	if err != nil {
		if !errors.Is(err, users.ErrNoCredential) { // these are not limited, and would fill the log
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

type refusal struct {
	error
	status int
	header http.Header
}

func (r *refusal) Status() int             { return r.status }
func (r *refusal) SetHeader(h http.Header) { maps.Copy(h, r.header) }

// letIn admits a request or answers why not.
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

// refuseFor answers with the status and headers of a [Refusal], or with a status and a reason of RFC 9209.
func refuseFor(w http.ResponseWriter, err error, status int, why string) {
	if known, ok := errors.AsType[Refusal](err); ok {
		known.SetHeader(w.Header())
		status = known.Status()
	}
	refuse(w, status, why)
}
