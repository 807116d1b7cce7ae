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
	t.baseline = nil // none of them have rules
	counts := []int{0, 10_000, 100_000, mostRules}
	if quick {
		counts = []int{0, 100_000}
	}
	for _, n := range counts {
		t.add(fmt.Sprintf("%d/%s", n, wayHandoff), wayHandoff, func(ctx context.Context, s *stage, w way) ([]figure, error) {
			return fetchWithRules(ctx, s, w, n, quick)
		})
	}
	return t.topology
}

// fetchWithRules adds rules, fetches and removes them.
func fetchWithRules(ctx context.Context, s *stage, w way, n int, quick bool) (figures []figure, err error) {
	rules, err := openRules(s.Host("cloud"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rules.to.Close(), rules.back.Close()) }()
	added, err := rules.each(ctx, n, func(m *ebpf.Map, source, destination, instead netip.AddrPort) error {
		return m.Put(ruleKey(source, destination), rule(instead))
	})
	if err != nil {
		return nil, err
	}
	figures, err = fetchLatency(ctx, w, usual, quick)
	removed, other := rules.each(ctx, n, func(m *ebpf.Map, source, destination, _ netip.AddrPort) error {
		return m.Delete(ruleKey(source, destination))
	})
	if n > 0 {
		figures = append(figures, figure{"insert", "insert", "rules/s", float64(n) / added.Seconds()}, figure{"delete", "delete", "rules/s", float64(n) / removed.Seconds()})
	}
	return figures, errors.Join(err, other)
}

// switchRules are the maps of the BPF switch on the gateway's machine.
type switchRules struct{ to, back *ebpf.Map }

func openRules(host *lab.Host) (r switchRules, err error) {
	dirs, err := filepath.Glob(filepath.Join(host.Dir(), "bpf", "heddle", "net-*"))
	if err != nil || len(dirs) != 1 {
		return r, fmt.Errorf("the gateway's machine has BPF switches %q, %w", dirs, err)
	}
	if r.to, err = ebpf.LoadPinnedMap(filepath.Join(dirs[0], "heddle_to"), nil); err == nil {
		r.back, err = ebpf.LoadPinnedMap(filepath.Join(dirs[0], "heddle_back"), nil)
	}
	return r, err
}

// each does something with n rules, those of one connection after those of another, as a gateway adds them. It returns how long it took.
func (r switchRules) each(ctx context.Context, n int, do func(m *ebpf.Map, source, destination, instead netip.AddrPort) error) (time.Duration, error) {
	began := time.Now()
	for i := range n / 2 {
		client, gateway, tenant := movedConnection(i)
		if err := errors.Join(do(r.to, client, gateway, tenant), do(r.back, tenant, client, gateway), ctx.Err()); err != nil {
			return 0, fmt.Errorf("rules of connection %d: %w", i, err)
		}
	}
	return time.Since(began), nil
}

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
