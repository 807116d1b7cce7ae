package stream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"heddle/config"
	"heddle/internal/dial"
	"heddle/path"
	"heddle/path/resolve"
	"heddle/stripe"
)

// askOver has each path that is no tunnel ask for the peer's name itself.
func askOver(paths []stripe.Path) {
	names := resolve.NewNames()
	for i, p := range paths {
		if !path.IsTunnel(p.Describe().Kind) {
			paths[i].Path = names.Over(p.Path)
		}
	}
}

// lookup finds the peer's address where this machine itself must know it: for the kernel, and to find a survey.
type lookup struct {
	bases []path.Path // that tunnels ride

	mu    sync.Mutex
	asked []string // the bases that were asked
	own   bool     // this machine's own resolver was asked
}

// peer looks a device's address up, IPv4 first: over one base after the other until one has an answer, or, where tunnels ride
// this machine's own routes, by its resolver.
func (l *lookup) peer(ctx context.Context, to path.Target) (netip.AddrPort, error) {
	if to.Name == "" {
		return netip.AddrPortFrom(to.Addr, to.Port), nil
	}
	addrs, err := l.addresses(ctx, to.Name)
	if err != nil {
		return netip.AddrPort{}, &path.Error{What: "stream to " + to.String(), Why: "the name cannot be looked up", Err: err,
			Hint: "is it spelled right, and do this machine's nameservers answer? An address needs no lookup"}
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return netip.AddrPortFrom(addrs[0].Unmap(), to.Port), nil
}

func (l *lookup) addresses(ctx context.Context, name string) (addrs []netip.Addr, err error) {
	if len(l.bases) == 0 {
		l.mu.Lock()
		l.own = true
		l.mu.Unlock()
		return dial.Lookup(ctx, name)
	}
	for _, base := range l.bases {
		l.mu.Lock()
		if who := base.Describe().Name; !slices.Contains(l.asked, who) {
			l.asked = append(l.asked, who)
		}
		l.mu.Unlock()
		if addrs, err = resolve.OverPath(ctx, base, name); err == nil {
			break
		}
	}
	return addrs, err
}

// claims say who sees the name of a peer that is reached by these paths.
func (l *lookup) claims(name string, paths []stripe.Path, kernel bool) (lines []string) {
	var far, proxies []string
	l.mu.Lock()
	near, own := slices.Clone(l.asked), l.own
	l.mu.Unlock()
	for _, p := range paths {
		switch kind := p.Describe().Kind; {
		case kernel: // connects to the address that was found
		case !path.IsTunnel(kind):
			near = append(near, p.Name)
		case kind == "socks5":
			proxies = append(proxies, p.Name)
		default:
			far = append(far, p.Name)
		}
	}
	say := func(names []string, format string) {
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf(format, name, strings.Join(names, ", ")))
		}
	}
	say(far, "the name %s is looked up at the far end of %s; who runs that sees the name, and the networks before it do not")
	say(proxies, "the name %s is looked up by the proxy of %s, which sees the name, as do the networks before the proxy")
	say(near, "the name %s is asked of this machine's nameservers over %s; these networks and the nameservers see the name, and no network sees it that was not chosen")
	if own {
		lines = append(lines, fmt.Sprintf("the name %s is asked of this machine's resolver; it sees the name, and so does the network that its questions take", name))
	}
	return lines
}

// PrintClaim says what a session hides and what it does not, who sees several of its paths, and who sees the peer's name.
func (d *Dialer) PrintClaim(out io.Writer, s stripe.Status) {
	fmt.Fprintln(out, "claim:", s.Claim)
	lines := SharedObservers(s)
	if to, err := peerOf(context.Background(), d.stripe.To); err == nil && to.Name != "" {
		lines = append(lines, d.lookup.claims(to.Name, d.options.Paths, d.stripe.Backend != config.BackendStripe)...)
	}
	for _, line := range lines {
		fmt.Fprintln(out, "claim:", line)
	}
}
