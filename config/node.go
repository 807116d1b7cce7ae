package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"heddle/identity"
	"heddle/overlay/client"
	"heddle/overlay/node"
	"heddle/path"
)

// Node is a node.toml, one overlay node, as in the flags of `heddle node run`.
type Node struct {
	// Name is the node's name; empty is the machine's name.
	Name       string        `toml:"name" help:"what the node calls itself, a <NAME>; the machine's name where it is not given"`
	Listen     string        `toml:"listen" help:"where clients come to, <[HOST]:PORT>, TCP and UDP"`
	Identity   string        `toml:"identity" help:"the <FILE> of the node's private key" complete:"file"`
	Grantor    []string      `toml:"grantor" help:"the <KEY> of somebody whose grants count"`
	Mode       []string      `toml:"mode" help:"what it offers: {modes}" list:"commas"`
	Deny       []string      `toml:"deny" help:"lead nobody to this <DESTINATION>: CIDR[:PORT] or NAME:PORT"`
	Revoked    string        `toml:"revoked" help:"what heddle node revoke writes, a <FILE>; revoked beside the identity where it is not given" complete:"file"`
	Usage      string        `toml:"usage" help:"keep in <FILE> how much each grant has used; usage.json beside the identity where it is not given" complete:"file"`
	MaxFlows   int           `toml:"max-flows" help:"how many connections and flows one holder may have at a time"`
	Idle       time.Duration `toml:"idle" help:"end a UDP flow that carried nothing for so long"`
	Drain      time.Duration `toml:"drain" help:"how long what goes on may do so after an interrupt"`
	LogTargets bool          `toml:"log-targets" help:"write down who talks to whom"`
	Address    []string      `toml:"address" help:"where clients reach the node, <HOST:PORT>; where it listens, if it is not given"`
	Board      string        `toml:"board" help:"register there: the board, <KEY@HOST:PORT> or a file"`
	// ASN is the node's autonomous system, for a board; 0 is unknown.
	ASN           int    `toml:"asn" help:"the <NUMBER> of the autonomous system that the node is in, for the board"`
	NATPorts      string `toml:"nat-ports" help:"in mode nat, lease ports <FIRST-LAST> to clients"`
	SetForwarding bool   `toml:"set-forwarding" help:"in mode nat, let the kernel forward, for leases alone"`
}

// DefaultNode returns the default settings.
func DefaultNode() Node {
	return Node{Listen: fmt.Sprintf(":%d", node.DefaultPort), Mode: []string{client.ModeForward}, MaxFlows: node.DefaultMaxFlows, NATPorts: "20000-20999",
		Idle: node.DefaultIdle, Drain: node.DefaultDrain}
}

// LoadNode reads a node.toml. It fails with all its [Problems]. It makes file names relative to the working directory.
func LoadNode(file string) (Node, error) {
	n := DefaultNode()
	err := loadFlat(file, &n, func() problems { return n.problems() })
	dir := filepath.Dir(file)
	besideFiles(dir, &n.Identity, &n.Revoked, &n.Usage)
	besideBoard(dir, &n.Board)
	return n, err
}

// problems returns the errors by key.
func (n Node) problems() problems {
	wrong := problems{}
	if n.Name != "" {
		wrong.add("name", client.CheckName(n.Name))
	}
	at, err := n.ListenAddr()
	wrong.add("listen", err)
	for i, text := range n.Grantor {
		_, err := identity.ParseKey(text)
		wrong.add(fmt.Sprintf("grantor[%d]", i), err)
	}
	for i, text := range n.Mode {
		wrong.add(fmt.Sprintf("mode[%d]", i), oneOf("mode", text, client.Modes()))
	}
	for i, text := range n.Deny {
		_, err := client.ParseDestination(text)
		wrong.add(fmt.Sprintf("deny[%d]", i), err)
	}
	for i, text := range n.Address {
		wrong.add(fmt.Sprintf("address[%d]", i), checkHostPort(text, "where clients reach the node, such as node.example:7443"))
	}
	_, _, err = n.NATPortRange()
	wrong.add("nat-ports", err)
	if n.ASN < 0 || int64(n.ASN) > math.MaxUint32 {
		wrong.say("asn", fmt.Sprintf("%d is not a number of 32 bits", n.ASN), "leave it out if it is not known")
	}
	if n.Board != "" && len(n.Address) == 0 && at.Addr().IsUnspecified() {
		wrong.say("board", "others could not be told where the node is: it listens on all addresses", "name one with address, HOST:PORT")
	}
	if n.MaxFlows < 1 {
		wrong.say("max-flows", fmt.Sprintf("%d is not above 0", n.MaxFlows), "leave it out for the default")
	}
	if n.Idle <= 0 {
		wrong.say("idle", fmt.Sprintf("%v is not above 0", n.Idle), "a time such as 2m")
	}
	if n.Drain < 0 {
		wrong.say("drain", fmt.Sprintf("%v is less than 0", n.Drain), "a time such as 30s; 0s waits for nothing")
	}
	return wrong
}

// Check returns the first error of the flags, named by its flag.
func (n Node) Check() error { return n.problems().first() }

// NATPortRange returns the bounds of NATPorts.
func (n Node) NATPortRange() (first, last uint16, err error) {
	from, to, _ := strings.Cut(n.NATPorts, "-")
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return 0, 0, &path.Error{What: "nat-ports", Why: fmt.Sprintf("%q is not a range of ports", n.NATPorts), Hint: "write FIRST-LAST, such as 20000-20999"}
	}
	return uint16(a), uint16(b), nil
}

// ListenAddr is where the node listens. Without a host it is all addresses of both families.
func (n Node) ListenAddr() (netip.AddrPort, error) {
	a, err := net.ResolveTCPAddr("tcp", n.Listen)
	if err != nil {
		return netip.AddrPort{}, &path.Error{What: "listen", Why: fmt.Sprintf("%q is not an address and a port: %v", n.Listen, err),
			Hint: "write :7443, 192.0.2.9:7443 or [2001:db8::9]:7443"}
	}
	if a.IP == nil {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(a.Port)), nil
	}
	at := a.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// Options returns the node's options without hooks. It reads the identity, which must exist.
func (n Node) Options() (node.Options, error) {
	o := node.Options{Name: n.Name, Modes: n.Mode, MaxFlows: n.MaxFlows, Idle: n.Idle, Drain: n.Drain, LogTargets: n.LogTargets}
	if err := n.Check(); err != nil {
		return o, err
	}
	for _, text := range n.Grantor {
		key, _ := identity.ParseKey(text)
		o.Grantors = append(o.Grantors, key)
	}
	for _, text := range n.Deny {
		d, _ := client.ParseDestination(text)
		o.Deny = append(o.Deny, d)
	}
	if o.Name == "" {
		o.Name = machineName()
	}
	file, err := identity.FileOr(n.Identity)
	if err != nil {
		return o, err
	}
	if o.Identity, err = identity.Load(file); err != nil {
		return o, err
	}
	o.Revoked, o.Usage = n.RevokedFile(file), n.Usage
	if o.Usage == "" {
		o.Usage = filepath.Join(filepath.Dir(file), "usage.json")
	}
	return o, nil
}

// RevokedFile is the revocation file of a node with its identity in a file.
func (n Node) RevokedFile(identityFile string) string {
	if n.Revoked != "" {
		return n.Revoked
	}
	return filepath.Join(filepath.Dir(identityFile), "revoked")
}

// machineName is the first part of this machine's name, if it is a valid node name.
func machineName() string {
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	if client.CheckName(name) != nil {
		return "node"
	}
	return name
}
