package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
)

const lookupPatience = 10 * time.Second

// lookupServer reads HOST:PORT and looks the host up by this machine's own resolver.
func lookupServer(ctx context.Context, to string) ([]netip.AddrPort, error) {
	host, text, err := net.SplitHostPort(to)
	var port uint64
	if err == nil {
		port, err = strconv.ParseUint(text, 10, 16)
	}
	if err != nil || port == 0 || host == "" {
		return nil, &path.Error{What: fmt.Sprintf("server %q", to), Why: "not a host and a port",
			Hint: "write vpn.example.com:51820, 192.0.2.1:51820 or [2001:db8::1]:51820"}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addresses) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		return nil, &path.Error{What: "server " + host, Why: "its name does not resolve", Hint: "check the name and this machine's DNS, or write the address", Err: err}
	}
	var all []netip.AddrPort
	for _, a := range addresses {
		all = append(all, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return all, nil
}

// lookAgain is how often a name is looked up again: by this machine's resolver, as programs do.
const lookAgain = time.Minute

// silence is how long nothing is heard from an address that the name no longer has, before the session ends.
const silence = 10 * time.Second

// maxOthers bounds what a name that has ever other addresses leaves behind.
const maxOthers = 32

// ErrMoved says that the server has another address now. The guard stays.
var ErrMoved = errors.New("the server moved")

// names is the server's name and what was found of it since.
type names struct {
	lookup func(context.Context, string) ([]netip.AddrPort, error)
	every  time.Duration
	found  chan []netip.AddrPort // nil where the server was given by address

	listed bool             // the name has the server's address still
	now    []netip.AddrPort // what it has
	others []netip.AddrPort // what it had or has beside the server's, the newest last
}

// newNames gives names with what the first lookup found.
func newNames(o Options, server netip.AddrPort, first []netip.AddrPort) *names {
	n := &names{lookup: o.Lookup, every: cmp.Or(o.LookAgain, lookAgain)}
	if len(first) > 0 {
		n.found = make(chan []netip.AddrPort)
		n.take(server, first)
	}
	return n
}

// take notes what a lookup found. It reports whether the name has addresses that it never had.
func (n *names) take(server netip.AddrPort, found []netip.AddrPort) (more bool) {
	n.now, n.listed = found, slices.Contains(found, server)
	for _, a := range found {
		if a != server && !slices.Contains(n.others, a) {
			n.others, more = append(n.others, a), true
		}
	}
	n.others = n.others[max(0, len(n.others)-maxOthers):]
	return more
}

// follow looks the name up again and again until ctx ends.
func (n *names) follow(ctx context.Context, to string, failed func(error)) {
	tick := time.NewTicker(n.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		found, err := n.lookup(ctx, to)
		if err != nil {
			failed(err)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case n.found <- found:
		}
	}
}

// FollowName looks the server's name up again until ctx ends, where it was given by name. [Lanes.Moved] hears of it.
func (s *Lanes) FollowName(ctx context.Context) {
	if s.names.found != nil {
		go s.names.follow(ctx, s.o.To, func(err error) {
			if ctx.Err() == nil {
				s.Warn("the server's name cannot be looked up again, so it would not be noticed if the server moved: %s", errhint.Reason(err))
			}
		})
	}
}

// Others are the addresses beside the server's that its name has or had: a program that looks the name up may send there,
// where nothing splits.
func (s *Lanes) Others() []netip.AddrPort { return slices.Clone(s.names.others) }

func (s *Lanes) warnOthers() {
	if len(s.names.others) > 0 {
		s.Warn("%s has more than one address; what is sent to another than %s does not leave, since it would not be split", s.o.To, s.Server)
	}
}

// Moved reports whether there are more [Lanes.Others] than before. It fails with [ErrMoved] where the name no longer has
// the server's address and nothing is heard from there. It does not wait.
func (s *Lanes) Moved(now time.Time) (more bool, err error) {
	select {
	case found := <-s.names.found:
		if more = s.names.take(s.Server, found); more {
			s.warnOthers()
		}
	default:
	}
	if s.names.listed || s.names.found == nil {
		return more, nil
	}
	for _, l := range s.list {
		if now.Sub(l.health.LastHeard()) < silence {
			return more, nil
		}
	}
	return more, &path.Error{What: "server " + s.o.To, Err: ErrMoved,
		Why:  fmt.Sprintf("its address is %v now, no longer %v, where nothing is heard from; nothing leaves to either", s.names.now, s.Server),
		Hint: fmt.Sprintf("start this again, and then the program that sends there; or `heddle down %s` to let it send unsplit", s.o.Session)}
}
