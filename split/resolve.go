package split

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"heddle/path"
)

func checkServer(to string) error {
	host, port, err := net.SplitHostPort(to)
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(port, 10, 16); err == nil && n == 0 {
			err = fmt.Errorf("port 0")
		}
	}
	if err != nil || host == "" {
		return &path.Error{What: fmt.Sprintf("server %q", to), Why: "not a host and a port", Hint: "write vpn.example.com:51820, 192.0.2.1:51820 or [2001:db8::1]:51820"}
	}
	return nil
}

// Resolve finds the server's address: of those its name has, the one that most paths can send to. Whoever runs or watches
// the nameserver that is asked sees the name; see lookupFirst for which one that is.
func (f *Fan) Resolve(ctx context.Context) error {
	f.nameservers = nameservers(resolvConfs...)
	host, _, _ := net.SplitHostPort(f.o.To)
	addresses, err := f.lookupFirst(ctx, host)
	if err != nil {
		return err
	}
	f.choose(ctx, addresses)
	return nil
}

// lookupFirst looks a name up before there are flows: by this machine's resolver, unless a rule hides the handshake,
// which bears the same name, from all paths but one.
func (f *Fan) lookupFirst(ctx context.Context, host string) ([]netip.Addr, error) {
	hidden := f.rules.handshakeLane()
	if _, err := netip.ParseAddr(host); err == nil || hidden < 0 {
		return lookupHost(ctx, host)
	}
	l := f.lanes[hidden]
	addresses, err := lookupByPath(ctx, l.way, f.nameservers, host)
	if err != nil {
		return nil, &path.Error{What: "server " + host, Why: "its name cannot be looked up by path " + l.spec.Name + ", where the handshake goes",
			Hint: "this machine's own nameserver may be out of that path's reach: write the server's address instead", Err: err}
	}
	return addresses, nil
}

// port is the server's.
func (f *Fan) port() uint16 {
	_, text, _ := net.SplitHostPort(f.o.To)
	n, _ := strconv.ParseUint(text, 10, 16)
	return uint16(n)
}

// choose makes that address the server's which most paths can send to; where none can, the first one, or the one that
// is in use.
func (f *Fan) choose(ctx context.Context, addresses []netip.Addr) {
	best, most := netip.AddrPort{}, -1
	for _, a := range addresses {
		to := netip.AddrPortFrom(a.Unmap(), f.port())
		if len(addresses) == 1 {
			best = to // no choice, and a tunnel would be opened to find that out
			break
		}
		if n := f.reach(ctx, to); n > most {
			best, most = to, n
		}
	}
	if old := f.server.Load(); old != nil && (*old == best || most == 0) {
		return
	} else if old != nil {
		f.log.Info("the server moved", "session", f.o.Session, "from", *old, "to", best)
	}
	f.server.Store(&best)
}

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addresses) == 0 {
		err = fmt.Errorf("no addresses")
	}
	if err != nil {
		return nil, &path.Error{What: "server " + host, Why: "its name does not resolve", Hint: "check the name and this machine's DNS, or write the address", Err: err}
	}
	return addresses, nil
}

// reach counts the paths that have a way to an address.
func (f *Fan) reach(ctx context.Context, to netip.AddrPort) int {
	n := 0
	for _, l := range f.lanes {
		if flow, err := path.Open(ctx, l.way, to); err == nil {
			flow.Close()
			n++
		}
	}
	return n
}

// resolveAgain looks the server up again, by its paths where their networks' nameservers are known, and moves the flows
// where the server has another address now.
func (f *Fan) resolveAgain(ctx context.Context) {
	f.mu.Lock()
	f.resolved = f.now()
	f.mu.Unlock()
	host, _, _ := net.SplitHostPort(f.o.To)
	if _, err := netip.ParseAddr(host); err == nil {
		return
	}
	addresses, err := f.lookupOutside(ctx, host)
	if err != nil {
		f.log.Warn("the server is not heard, and its name cannot be looked up again", "session", f.o.Session, "error", err)
		return
	}
	before := *f.server.Load()
	f.choose(ctx, addresses)
	if *f.server.Load() == before {
		return
	}
	for _, l := range f.lanes {
		l.shut()
		l.open(ctx, *f.server.Load())
	}
}

func (f *Fan) lookupOutside(ctx context.Context, host string) ([]netip.Addr, error) {
	if len(f.nameservers) == 0 && f.rules.handshakeLane() < 0 {
		return lookupHost(ctx, host)
	}
	var failed error
	lanes := f.lanes
	if hidden := f.rules.handshakeLane(); hidden >= 0 {
		lanes = lanes[hidden : hidden+1]
	}
	for _, l := range lanes {
		addresses, err := lookupByPath(ctx, l.way, f.nameservers, host)
		if err == nil {
			return addresses, nil
		}
		failed = err
	}
	return nil, failed
}
