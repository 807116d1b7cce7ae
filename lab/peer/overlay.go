package peer

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"

	"heddle/internal/program"
	"heddle/lab"
)

// Default ports of nodes and of stream servers.
const (
	NodePort   = 7443
	StreamPort = 4470
)

// Overlay is a world in which each host is a device with its own key and settings. Host client is the nodes' grantor.
type Overlay struct {
	*lab.Instance
	*devices

	mu   sync.Mutex
	keys map[string]string // public ones that were made, by host
}

// NewOverlay makes the devices of a world below work, an existing directory.
func NewOverlay(heddle, work string, in *lab.Instance) (*Overlay, error) {
	o := &Overlay{Instance: in, keys: map[string]string{},
		devices: &devices{heddle: heddle, work: work, on: func(host string) program.Prepare { return in.Host(host).Command }}}
	for _, host := range in.State().World.Hosts {
		if err := os.Mkdir(o.Home(host.Name), 0o700); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Key is the public key of a host, which is made once it is asked for.
func (o *Overlay) Key(ctx context.Context, host string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if key, ok := o.keys[host]; ok {
		return key, nil
	}
	out, err := ran(ctx, o, host, "node", "key")
	if err == nil {
		o.keys[host] = strings.TrimSpace(out)
	}
	return o.keys[host], err
}

// keysOf returns the public keys of a host and of the client. Both exist then, as commands on either need them.
func (o *Overlay) keysOf(ctx context.Context, host string) (own, client string, err error) {
	if own, err = o.Key(ctx, host); err == nil {
		client, err = o.Key(ctx, "client")
	}
	return own, client, err
}

// Node starts an overlay node on a host, for users with grants from the client.
func (o *Overlay) Node(ctx context.Context, host string, flags ...string) (*Process, error) {
	_, client, err := o.keysOf(ctx, host)
	if err != nil {
		return nil, err
	}
	return o.Start(ctx, host, "listens on", append([]string{"node", "run", "--name", host, "--grantor", client}, flags...)...)
}

// Pass adds a pass for the node on a host at addr to the client, under a name and valid for an hour. flags go to
// `heddle node grant`. It returns the file of the pass.
func (o *Overlay) Pass(ctx context.Context, name, host string, at netip.Addr, flags ...string) (file string, err error) {
	node, client, err := o.keysOf(ctx, host)
	if err != nil {
		return "", err
	}
	pass, err := ran(ctx, o, "client", append([]string{"node", "grant", client, "--until", "1h", "--name", name,
		"--node", node, "--address", netip.AddrPortFrom(at, NodePort).String()}, flags...)...)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(o.work, name+"-*.json")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(pass)
	if err = errors.Join(err, f.Close()); err == nil {
		_, err = ran(ctx, o, "client", "node", "add", f.Name())
	}
	return f.Name(), err
}

// Over returns the flags for one path over each of these nodes, by the names of their passes.
func Over(names ...string) (flags []string) {
	for _, name := range names {
		flags = append(flags, "--via", name+"=node:"+name)
	}
	return flags
}

// StreamServer runs `heddle stream serve` or `heddle recv`, as command says, at an address of the host for the client.
func (o *Overlay) StreamServer(ctx context.Context, host string, at netip.AddrPort, command ...string) (*Process, error) {
	_, client, err := o.keysOf(ctx, host)
	if err != nil {
		return nil, err
	}
	return o.Start(ctx, host, "peers:", append(command, "--listen", at.String(), "--allow", client)...)
}

// StreamDial runs `heddle stream dial NAME` on the client, to the host at an address. The flags select the paths.
// Programs connect to listen.
func (o *Overlay) StreamDial(ctx context.Context, name string, listen netip.AddrPort, host string, at netip.AddrPort, flags ...string) (*Process, error) {
	key, _, err := o.keysOf(ctx, host)
	if err != nil {
		return nil, err
	}
	return o.Start(ctx, "client", "is up", append([]string{"stream", "dial", name, "--listen", listen.String(),
		"--to", at.String(), "--key", key}, flags...)...)
}
