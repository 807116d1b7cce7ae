package cloud

import (
	"cmp"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/tcprepair"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/bpfswitch"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/nftswitch"
	"heddle/pseudonym/gateway/ovsswitch"
)

// gatewayIdentity returns the certificate by which agents of tenants know gateways. All gateways have its key, which follows from gateway.key.
func gatewayIdentity(seal *database.Seal) (c tls.Certificate, err error) {
	seed, err := seal.Derive("gateway identity")
	if err != nil {
		return c, err
	}
	key, now := ed25519.NewKeyFromSeed(seed), time.Now()
	leaf, err := ca.Client("gateway", key, now, now.Add(ca.BrowserLife)) // an agent looks at the key alone
	if err != nil {
		return c, err
	}
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// GatewayIdentity returns the key by which agents of tenants know the gateways of a cloud.
func GatewayIdentity(o Options) (ca.KeyID, error) {
	seal, err := readGatewaySeal(o.Dir)
	if err == nil && seal == nil {
		err = errNoGatewayKey()
	}
	if err != nil {
		return ca.KeyID{}, err
	}
	c, err := gatewayIdentity(seal)
	if err != nil {
		return ca.KeyID{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(c.Leaf.PublicKey)
	return ca.KeyOfPublic(der), err
}

func errNoGatewayKey() error {
	return &errhint.Error{What: "the key of the gateways", Why: "there is no " + GatewayKey, Hint: "heddle pseudonym init --renew makes one"}
}

// newMover returns what moves connections to agents, or none if the mode moves none. In the mode auto a gateway that cannot move them says so
// at the first tenant that could take one.
func newMover(o Options, seal *database.Seal, open func() (gateway.Holder, error)) (*gateway.Mover, error) {
	switch {
	case o.Mode == gateway.Pass || o.Mode == gateway.Relay || o.Mode == gateway.V6:
		return nil, nil
	case seal == nil && o.Mode == gateway.Handoff:
		return nil, errNoGatewayKey()
	case seal == nil:
		sayRelayed(o, errNoGatewayKey())
		return nil, nil
	}
	identity, err := gatewayIdentity(seal)
	if err != nil {
		return nil, err
	}
	m := gateway.NewMover(identity, func() (gateway.Holder, error) {
		if o.SwitchAt != "" { // it may start later than the gateway
			return gateway.Elsewhere(o.SwitchAt), nil
		}
		h, err := open()
		if err != nil && o.Mode != gateway.Handoff {
			sayRelayed(o, err)
		}
		return h, err
	})
	if o.Mode == gateway.Handoff || o.Shares { // others' connections need it too
		return m, m.Begin()
	}
	return m, nil
}

// sayRelayed says why a gateway moves no connections.
func sayRelayed(o Options, why error) {
	o.Log.Warn("connections are relayed that could move to a tenant", "error", why, "hint", errhint.Of(why))
}

// openSwitch opens the switch of this process, which may share what it leads.
func (c *Cloud) openSwitch() (gateway.Holder, error) {
	err := tcprepair.Allowed()
	if err != nil {
		return nil, err
	}
	s, err := openKind(c.o)
	if err != nil {
		return nil, err
	}
	if c.o.Shares {
		c.shared = share(s.(table), c.db, c.o.Log) // the configuration allows no other kind
		return gateway.Here(c.shared), nil
	}
	return gateway.Here(s), nil
}

// openKind opens a switch of the options' kind. Where BPF is not allowed Auto takes nftables, which need fewer rights and take fewer connections a second.
func openKind(o Options) (gateway.Switch, error) {
	switch o.Switch {
	case lead.NFT:
		return nftswitch.New()
	case lead.OVS:
		return ovsswitch.New(ovsswitch.Options{Bridge: o.Bridge})
	}
	s, err := bpfswitch.New(bpfswitch.Options{})
	if err == nil || o.Switch == lead.BPF {
		return s, err
	}
	instead, other := nftswitch.New()
	if other != nil {
		return nil, other
	}
	o.Log.Info("nftables lead connections that move, and not BPF, which takes more of them a second", "error", err, "hint", errhint.Of(err))
	return instead, nil
}

// CheckDirect reports why this machine could not lead connections to an agent that answers directly, or nil.
func CheckDirect(o Options, agent string) error {
	at, err := net.ResolveTCPAddr("tcp", agent)
	if err != nil {
		return err
	}
	if o.SwitchAt == "" { // that one's kind is not known here
		if kind, err := CheckSwitch(o); err != nil || kind != lead.BPF {
			return cmp.Or(err, gateway.ErrNotDirect)
		}
	}
	return bpfswitch.CheckDirect(at.AddrPort().Addr().Unmap())
}

// CheckSwitch returns the kind of switch that this machine would lead connections by that move. It changes nothing. With a switch in another process it
// connects to that one.
func CheckSwitch(o Options) (lead.Kind, error) {
	if o.SwitchAt != "" {
		return o.Switch, gateway.CheckElsewhere(o.SwitchAt)
	}
	if err := tcprepair.Allowed(); err != nil {
		return "", err
	}
	switch o.Switch {
	case lead.OVS:
		return lead.OVS, ovsswitch.Check(ovsswitch.Options{Bridge: o.Bridge})
	case lead.Auto, lead.BPF:
		if err := bpfswitch.Check(bpfswitch.Options{}); err == nil || o.Switch == lead.BPF {
			return lead.BPF, err
		}
	}
	_, err := lead.Families()
	return lead.NFT, err
}
