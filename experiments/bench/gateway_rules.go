package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"heddle/internal/bpf"
	"heddle/lab"
)

// mostRules are as many as in figure 4(c).
const mostRules = 1_000_000

// gatewayRules is figure 4(c): fetches by handoff while the switch has rules of other connections, and how fast they come and go. As in the paper a
// connection has two.
func gatewayRules(quick bool) *topology {
	t := gatewayTopology("rules", wayHandoff)
	t.addRules(quick, []int{0, 10_000, 100_000, mostRules}, func(s *stage) (rules, error) { return openBPFRules(s.Host("cloud")) })
	return t.topology
}

// addRules adds a case for each number of rules, compared with the first one.
func (t pseudonymCases) addRules(quick bool, counts []int, open func(*stage) (rules, error)) {
	t.baseline = nil // none of them have rules
	if quick {
		counts = []int{0, 100_000}
	}
	for _, n := range counts {
		t.add(fmt.Sprintf("%d/%s", n, wayHandoff), wayHandoff, func(ctx context.Context, s *stage, w way) (figures []figure, err error) {
			r, err := open(s)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			return fetchWithRules(ctx, w, r, n, quick)
		})
	}
}

// rules are those of a switch.
type rules interface {
	// put adds the rules of a connection, and remove removes them. number is the connection's.
	put(number int, client, gateway, tenant netip.AddrPort) error
	remove(number int, client, gateway, tenant netip.AddrPort) error
	Close() error
}

// fetchWithRules adds rules, fetches and removes them.
func fetchWithRules(ctx context.Context, w way, r rules, n int, quick bool) (figures []figure, err error) {
	added, err := eachMoved(ctx, n/2, r.put)
	if err != nil {
		return nil, err
	}
	figures, err = fetchLatencies(ctx, w, quick)
	removed, other := eachMoved(ctx, n/2, r.remove)
	if n > 0 {
		figures = append(figures, figure{"insert", "insert", "rules/s", float64(n) / added.Seconds()}, figure{"delete", "delete", "rules/s", float64(n) / removed.Seconds()})
	}
	return figures, errors.Join(err, other)
}

// eachMoved does something for n connections, one after the other, as a gateway does. It returns how long it took.
func eachMoved(ctx context.Context, n int, do func(number int, client, gateway, tenant netip.AddrPort) error) (time.Duration, error) {
	began := time.Now()
	for i := range n {
		client, gateway, tenant := movedConnection(i)
		if err := errors.Join(do(i, client, gateway, tenant), ctx.Err()); err != nil {
			return 0, fmt.Errorf("rules of connection %d: %w", i, err)
		}
	}
	return time.Since(began), nil
}

// bpfRules are the rules of the BPF switch on the gateway's machine.
type bpfRules struct{ to, back *ebpf.Map }

func openBPFRules(host *lab.Host) (m bpfRules, err error) {
	dirs, err := filepath.Glob(filepath.Join(host.Dir(), "bpf", "heddle", "net-*"))
	if err != nil || len(dirs) != 1 {
		return m, fmt.Errorf("the gateway's machine has BPF switches %q, %w", dirs, err)
	}
	if m.to, err = ebpf.LoadPinnedMap(filepath.Join(dirs[0], "heddle_to"), nil); err == nil {
		m.back, err = ebpf.LoadPinnedMap(filepath.Join(dirs[0], "heddle_back"), nil)
	}
	return m, err
}

func (m bpfRules) put(_ int, client, gateway, tenant netip.AddrPort) error {
	return errors.Join(m.to.Put(ruleKey(client, gateway), rule(tenant)), m.back.Put(ruleKey(tenant, client), rule(gateway)))
}

func (m bpfRules) remove(_ int, client, gateway, tenant netip.AddrPort) error {
	return errors.Join(m.to.Delete(ruleKey(client, gateway)), m.back.Delete(ruleKey(tenant, client)))
}

func (m bpfRules) Close() error { return errors.Join(m.to.Close(), m.back.Close()) }

// movedConnection is one of many with different clients, of the addresses for benchmarks (RFC 2544).
func movedConnection(i int) (client, gateway, tenant netip.AddrPort) {
	const ports, first = 50_000, 10_000
	from := binary.BigEndian.AppendUint32(nil, 198<<24|18<<16|uint32(i/ports))
	at, _ := netip.AddrFromSlice(from)
	return netip.AddrPortFrom(at, uint16(first+i%ports)), netip.AddrPortFrom(lab.CloudGateway, 443), netip.AddrPortFrom(movedSite, 443)
}

// ruleKey is source and destination of packets, as the switch keeps them: two addresses, and then two ports.
func ruleKey(source, destination netip.AddrPort) []byte {
	from, to := source.Addr().As16(), destination.Addr().As16()
	b := append(from[:], to[:]...)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, source.Port()), destination.Port())
}

// rule is what the switch keeps: the time of the last packet, the address to write, and what happened to the connection.
func rule(instead netip.AddrPort) []byte {
	to := instead.Addr().As16()
	return append(append(binary.NativeEndian.AppendUint64(nil, bpf.Monotonic()), to[:]...), make([]byte, 8)...)
}
