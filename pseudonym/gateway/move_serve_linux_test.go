package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"path/filepath"

	"heddle/internal/nstest"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/ech"
)

// serve starts the site, its agent, and the gateway, to which the agent's address has each of the prefixes.
func (m *moving) serve(way role, by int, relays bool, prefixes []string, edit func(*tls.Config)) {
	t := m.t
	t.Helper()
	m.to = at(m.public, 443)
	issuer, root := catest.NewIssuer(t, string(zone))
	m.config = &tls.Config{ServerName: zone.Name(m.label), RootCAs: x509.NewCertPool(), NextProtos: []string{"who"}, MinVersion: tls.VersionTLS13}
	m.config.RootCAs.AddCert(root)
	file, inside := listenSidecar(t)
	siteAt(t, inside, issuer, zone.Name(m.label), edit)
	var relayed net.Listener
	m.tenant.Do(t, func() (err error) {
		relayed, err = net.Listen("tcp", m.sidecarAt())
		return err
	})
	siteAt(t, relayed, issuer, zone.Name(m.label), edit)
	key := newKey(t, 1)
	private, err := key.Private()
	if err != nil {
		t.Fatal(err)
	}
	m.list = ech.List(key.Config())
	taking := role{Listen: m.agentAt(), Sidecar: file, Direct: []netip.Addr{at(m.public, 0).Addr()}}
	if by == toServer {
		taking.Sidecar, taking.Server = "", m.server(issuer)
	}
	m.agent = m.start(m.tenant, taking)
	for _, p := range prefixes {
		way.To = append(way.To, p+m.agentAt())
	}
	if relays {
		way.To = append(way.To, m.sidecarAt())
	}
	way.Hello = [2][]byte{key.Config(), private}
	way.Late = by == byLate
	way.Stuck = by == byStuck
	if by == byBPF {
		way.Pins = filepath.Join(nstest.PinsBPF(t), "heddle")
	}
	if by == byOther || by == byStuck {
		way.Switch = filepath.Join(t.TempDir(), "switch")
		m.start(m.gateway, role{Switch: way.Switch, Pins: way.Pins})
		m.gateway.Do(t, func() error { return nstest.Set("ipv4/ip_unprivileged_port_start", "0") })
	}
	m.routing = way
	m.way = m.start(m.gateway, way)
}
