package peer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/lab"
)

// Ports of nodes and of the device that serves streams, as heddle has them where it is told no other.
const (
	NodePort   = 7443
	StreamPort = 4470
)

// Overlay is a world in which each host is a device of its own to heddle, with a key and settings, as people would have
// them. The host client is the grantor of the nodes.
type Overlay struct {
	*lab.Instance
	// Keys are the hosts' public ones.
	Keys         map[string]string
	heddle, work string
}

// NewOverlay makes the devices of a world, below work, an existing directory.
func NewOverlay(ctx context.Context, heddle, work string, in *lab.Instance) (*Overlay, error) {
	o := &Overlay{Instance: in, Keys: map[string]string{}, heddle: heddle, work: work}
	for _, host := range in.State().World.Hosts {
		out, err := o.must(ctx, host.Name, "node", "key")
		if err != nil {
			return nil, err
		}
		o.Keys[host.Name] = strings.TrimSpace(out)
	}
	return o, nil
}

// Home is a host's HEDDLE_HOME.
func (o *Overlay) Home(host string) string { return filepath.Join(o.work, host) }

// command is what env(1) runs: heddle with a host's own settings.
func (o *Overlay) command(host string, args []string) []string {
	return append([]string{"HEDDLE_HOME=" + o.Home(host), o.heddle}, args...)
}

// Run runs a command of heddle on a host to its end, for a minute at most. It gives what the command prints, and what it
// says besides.
func (o *Overlay) Run(ctx context.Context, host, input string, args ...string) (out, talk string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := o.Host(host).Command(ctx, "env", o.command(host, args)...)
	var said strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &said
	printed, err := cmd.Output()
	return string(printed), said.String(), err
}

// must is Run of what does not fail by itself.
func (o *Overlay) must(ctx context.Context, host string, args ...string) (string, error) {
	out, talk, err := o.Run(ctx, host, "", args...)
	if err != nil {
		return "", fmt.Errorf("%s: heddle %s: %w\n%s", host, strings.Join(args, " "), err, talk)
	}
	return out, nil
}

// Start starts a command of heddle on a host, and waits until it says a word.
func (o *Overlay) Start(ctx context.Context, host, word string, args ...string) (*Process, error) {
	p, err := Start(ctx, o.Host(host), "env", o.command(host, args)...)
	if err != nil {
		return nil, err
	}
	return p.started(p.AwaitLog(ctx, word))
}

// Node starts an overlay node on a host, for those whom the client gives grants.
func (o *Overlay) Node(ctx context.Context, host string, flags ...string) (*Process, error) {
	return o.Start(ctx, host, "listens on", append([]string{"node", "run", "--name", host, "--grantor", o.Keys["client"]}, flags...)...)
}

// Pass gives the client a pass under a name for the node on a host, which it reaches at the address, until an hour from now
// and as flags of `heddle node grant` say. It also gives the file that the pass is in.
func (o *Overlay) Pass(ctx context.Context, name, host string, at netip.Addr, flags ...string) (file string, err error) {
	pass, err := o.must(ctx, "client", append([]string{"node", "grant", o.Keys["client"], "--until", "1h", "--name", name,
		"--node", o.Keys[host], "--address", netip.AddrPortFrom(at, NodePort).String()}, flags...)...)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(o.work, name+"-*.json")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(pass)
	if err = errors.Join(err, f.Close()); err == nil {
		_, err = o.must(ctx, "client", "node", "add", f.Name())
	}
	return f.Name(), err
}

// Over are flags for a path over each of these nodes, by the names of their passes.
func Over(names ...string) (flags []string) {
	for _, name := range names {
		flags = append(flags, "--via", name+"=node:"+name)
	}
	return flags
}

// StreamServer runs a command that takes streams of the client at an address of the host: `heddle stream serve` or
// `heddle recv`, with flags that say what becomes of them.
func (o *Overlay) StreamServer(ctx context.Context, host string, at netip.AddrPort, command ...string) (*Process, error) {
	return o.Start(ctx, host, "peers:", append(command, "--listen", at.String(), "--allow", o.Keys["client"])...)
}

// StreamDial runs `heddle stream dial NAME` on the client, to the device on a host at an address, by the ways that the
// flags say. Programs connect to listen.
func (o *Overlay) StreamDial(ctx context.Context, name string, listen netip.AddrPort, host string, at netip.AddrPort, flags ...string) (*Process, error) {
	return o.Start(ctx, "client", "is up", append([]string{"stream", "dial", name, "--listen", listen.String(),
		"--to", at.String(), "--key", o.Keys[host]}, flags...)...)
}
