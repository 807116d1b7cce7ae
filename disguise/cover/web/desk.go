package web

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"heddle/disguise/cover"
)

// desk is the bridge's end behind another web server. It knows by a cookie which requests are those of one connection of a client.
type desk struct {
	*factory
	header string // that says whose a request is, or ""

	mu    sync.Mutex
	stays map[[markSize]byte]*stay
}

// stay is one connection of a client with the other server, or one request of a stranger.
type stay struct {
	visitor
	id   [markSize]byte
	busy int         // requests that are answered now; the desk's lock guards it
	late *time.Timer // ends a stay without requests; nil for strangers
	gone func()
}

// stayPatience is how long a client may ask for nothing. It asks at least each 90 s ([pollLongest]) while its connection is open.
const stayPatience = 4 * time.Minute

func newDesk(f *factory, header string) *desk {
	return &desk{factory: f, header: header, stays: map[[markSize]byte]*stay{}}
}

// Behind implements [cover.Fronted].
func (f *factory) Behind(ctx context.Context, c net.Conn, door cover.Door) {
	f.converse(ctx, c, f.desk.handler(door))
}

func (d *desk) handler(door cover.Door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := d.find(r)
		if s == nil {
			s = d.stranger(door(d.visitor(r)))
		}
		defer d.leave(s)
		s.ServeHTTP(w, r)
	})
}

// find returns the stay that a request is of, or nil.
func (d *desk) find(r *http.Request) *stay {
	c, err := r.Cookie(visitCookie)
	if err != nil {
		return nil
	}
	id, err := base64.RawURLEncoding.Strict().DecodeString(c.Value)
	if err != nil || len(id) != markSize {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stays[[markSize]byte(id)]
	if s != nil {
		s.busy++
		s.late.Stop()
	}
	return s
}

// stranger returns a stay of one request, unless a client says hello by it.
func (d *desk) stranger(enter cover.Enter, gone func()) *stay {
	s := &stay{visitor: visitor{factory: d.factory, enter: enter}, busy: 1, gone: gone}
	s.begin()
	s.known = func(g *guest) {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.id = g.marks.visit
		s.late = time.AfterFunc(stayPatience, func() { d.end(s) })
		s.late.Stop()
		d.stays[s.id] = s
	}
	return s
}

// leave notes that a request is answered.
func (d *desk) leave(s *stay) {
	over := !s.client()
	d.mu.Lock()
	if s.busy--; s.busy == 0 && s.late != nil {
		s.late.Reset(stayPatience)
	}
	stranger := s.late == nil
	d.mu.Unlock()
	if stranger {
		s.gone()
	} else if over {
		d.end(s)
	}
}

// end forgets a stay that is over, or that has had no requests for long.
func (d *desk) end(s *stay) {
	d.mu.Lock()
	if d.stays[s.id] != s || s.busy > 0 {
		d.mu.Unlock()
		return
	}
	delete(d.stays, s.id)
	s.late.Stop()
	d.mu.Unlock()
	s.gone()
}

// visitor returns the address of the visitor whose request it is, or nil. The other server's own entry is the last one, and those before
// it are what the visitor says.
func (d *desk) visitor(r *http.Request) net.Addr {
	all := r.Header.Values(d.header)
	if d.header == "" || len(all) == 0 {
		return nil
	}
	last := all[len(all)-1]
	last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
	if at, err := netip.ParseAddrPort(last); err == nil {
		return net.TCPAddrFromAddrPort(at)
	}
	if a, err := netip.ParseAddr(strings.Trim(last, "[]")); err == nil {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
	}
	return nil
}
