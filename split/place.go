package split

import (
	"net/netip"
	"slices"
	"sync"
)

// placesKept limits the addresses of a server that moves often.
const placesKept = 16

// places are the addresses at which a server is or was. The sessions of a relay share them.
type places struct {
	mu    sync.Mutex
	known []netip.AddrPort // in the order in which they became known; the first is never forgotten
	heard netip.AddrPort   // where the server was last heard, or the first one
}

func (p *places) add(addresses ...netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range addresses {
		if slices.Contains(p.known, a) {
			continue
		}
		if len(p.known) == placesKept {
			p.known = slices.Delete(p.known, 1, 2)
		}
		p.known = append(p.known, a)
	}
	if !p.heard.IsValid() && len(p.known) > 0 {
		p.heard = p.known[0]
	}
}

func (p *places) all() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.known)
}

func (p *places) hear(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = at
}

// first returns where a new session looks for the server.
func (p *places) first() netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

// view is what a session knows when it decides where its server is. No single path may decide that: it could send the whole
// session to a machine of its choice.
type view struct {
	at    netip.AddrPort // where the session sends to
	heard netip.AddrPort // where it last heard the server
	lost  bool           // it has not heard the server for long

	// known are the addresses that the server's name had at the start, and those that enough witnesses gave later. named are
	// those of the last lookup, and answered reports whether any path got an answer in it.
	known    []netip.AddrPort
	named    []netip.AddrPort
	answered bool

	// A server with keys proves that it is at an address: proven counts the independent witnesses. need is how many a session
	// needs to leave a server that it hears.
	proves bool
	proven map[netip.AddrPort]int
	need   int
}

// decide returns the address that the session has to send to.
func (v view) decide() netip.AddrPort {
	switch {
	case v.proves:
		return v.decideProven()
	case !v.lost:
		return v.at
	case v.at != v.heard:
		return v.heard // nothing answers there: go back
	case len(v.named) > 0 && !slices.Contains(v.named, v.at):
		return v.named[0]
	case v.answered:
		return v.known[0] // this machine is online, so the server may be back where it was first
	}
	return v.at
}

// decideProven prefers the address that was known first, where the session goes back to once the server answers there.
func (v view) decideProven() netip.AddrPort {
	need := v.need
	if v.lost {
		need = 1
	}
	for _, a := range v.known {
		if a == v.at && !v.lost {
			break
		}
		if v.proven[a] >= need {
			return a
		}
	}
	return v.at
}
