package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables"

	"heddle/internal/nft"
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
	defer func() { err = errors.Join(err, rules.conn.CloseLasting()) }()
	added, err := rules.each(ctx, n, rules.conn.SetAddElements)
	if err != nil {
		return nil, err
	}
	figures, err = fetchLatency(ctx, w, usual, quick)
	removed, other := rules.each(ctx, n, rules.conn.SetDeleteElements)
	if n > 0 {
		figures = append(figures, figure{"insert", "insert", "rules/s", float64(n) / added.Seconds()}, figure{"delete", "delete", "rules/s", float64(n) / removed.Seconds()})
	}
	return figures, errors.Join(err, other)
}

// switchRules are the maps of IPv4 in the switch of the gateway's machine.
type switchRules struct {
	conn     *nftables.Conn
	to, back *nftables.Set
}

func openRules(host *lab.Host) (r switchRules, err error) {
	err = host.Do(func() (err error) {
		r.conn, err = nft.Connect(nftables.AsLasting())
		return err
	})
	set := func(name string) *nftables.Set {
		return &nftables.Set{Table: nft.Inet("heddle_gateway"), Name: name, HasTimeout: true}
	}
	r.to, r.back = set("to4"), set("back4")
	return r, err
}

// each does something with n rules, those of one connection after those of another, as a gateway adds them. It returns how long it took.
func (r switchRules) each(ctx context.Context, n int, do func(*nftables.Set, []nftables.SetElement) error) (time.Duration, error) {
	const idle = 10 * time.Minute // as long as a gateway lets them be without packets
	began := time.Now()
	for i := range n / 2 {
		client, gateway, tenant := movedConnection(i)
		err := errors.Join(do(r.to, []nftables.SetElement{{Key: ruleKey(client, gateway), Val: tenant.Addr().AsSlice(), Timeout: idle}}),
			do(r.back, []nftables.SetElement{{Key: ruleKey(tenant, client), Val: gateway.Addr().AsSlice(), Timeout: idle}}), r.conn.Flush(), ctx.Err())
		if err != nil {
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

// ruleKey is source and destination of packets, as the switch keeps them.
func ruleKey(source, destination netip.AddrPort) (b []byte) {
	for _, a := range []netip.AddrPort{source, destination} {
		b = append(b, a.Addr().AsSlice()...)
		b = append(binary.BigEndian.AppendUint16(b, a.Port()), 0, 0) // registers have four bytes
	}
	return b
}
