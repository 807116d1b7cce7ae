package quicprobe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pion/stun/v3"

	"heddle/internal/errhint"
	"heddle/path"
)

// exits asks a STUN server over each path for that path's public address (RFC 8489, section 14.2).
func (p *prober) exits(ctx context.Context) error {
	if p.STUN == "" {
		return nil
	}
	servers, err := lookup(ctx, p.STUN, stunPort)
	if err != nil {
		return err
	}
	for i := range p.ways {
		p.talk("asking %s for the address of path %s", p.STUN, p.names[i])
		exit, err := p.exit(ctx, p.ways[i], servers)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			p.note("nobody knows the exit of path %s: %v", p.names[i], err)
			continue
		}
		p.report.Paths[i].Exit = exit.String()
	}
	for _, group := range oneExit(p.report.Paths) {
		p.note("%s leave through one exit: the server sees one address", strings.Join(group, " and "))
	}
	return nil
}

// oneExit returns the groups of paths that share an exit.
func oneExit(paths []PathReport) (groups [][]string) {
	names := map[string][]string{}
	for _, p := range paths {
		if p.Exit != "" {
			names[p.Exit] = append(names[p.Exit], p.Name)
		}
	}
	for _, exit := range slices.Sorted(maps.Keys(names)) {
		if len(names[exit]) > 1 {
			groups = append(groups, names[exit])
		}
	}
	return groups
}

// stunTries is how often a question is sent, each time waiting twice as long (RFC 8489, section 6.2.1).
const stunTries = 3

// exit asks the first server that the path reaches.
func (p *prober) exit(ctx context.Context, way path.Path, servers []netip.AddrPort) (exit netip.Addr, err error) {
	question, err := stun.Build(stun.TransactionID, stun.BindingRequest)
	if err != nil {
		return exit, err
	}
	var waits []time.Duration
	for i := range stunTries {
		waits = append(waits, p.pace.stun<<i)
	}
	for _, server := range servers {
		flow, openErr := path.Open(ctx, way, server)
		if openErr != nil {
			err = openErr
			continue
		}
		exit, err = ask(ctx, p, flow, server, question.Raw, waits, func(answer []byte) (netip.Addr, error) {
			return parseBinding(answer, question.TransactionID)
		})
		if errors.Is(err, errSilent) {
			why := fmt.Sprintf("the STUN server %v does not answer", server)
			if hint := errhint.Of(err); hint != "" {
				why += ": " + hint
			}
			err = errors.New(why)
		}
		return exit, err
	}
	return exit, err
}

// parseBinding reads the mapped address of a Binding response with this transaction id.
func parseBinding(data []byte, id [stun.TransactionIDSize]byte) (netip.Addr, error) {
	m := &stun.Message{Raw: append([]byte(nil), data...)}
	if err := m.Decode(); err != nil {
		return netip.Addr{}, err
	}
	if m.Type != stun.BindingSuccess || m.TransactionID != id {
		return netip.Addr{}, errors.New("it answers another question")
	}
	var mapped stun.XORMappedAddress
	if err := mapped.GetFrom(m); err != nil {
		return netip.Addr{}, err
	}
	a, ok := netip.AddrFromSlice(mapped.IP)
	if !ok || a.IsUnspecified() {
		return netip.Addr{}, errors.New("it gives no address")
	}
	return a.Unmap(), nil
}
