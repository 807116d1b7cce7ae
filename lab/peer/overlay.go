package peer

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab"
)

// Ports of nodes and of the device that serves streams.
const (
	NodePort   = 7443
	StreamPort = 4470
)

// Overlay is what it takes to stripe streams from a client to a server: identities, nodes and grants, made with the
// heddle binary as people would.
type Overlay struct {
	heddle, work string
	device       string // the client's key
	grantor      string
	// Passes are files for node: paths, by the name of the node's host.
	Passes map[string]string
}

// NewOverlay makes the identities of a client and of a grantor in work, an existing directory.
func NewOverlay(heddle, work string) (*Overlay, error) {
	o := &Overlay{heddle: heddle, work: work, Passes: map[string]string{}}
	var err error
	if o.device, err = o.key("device/identity.pem"); err == nil {
		o.grantor, err = o.key("grantor/identity.pem")
	}
	return o, err
}

// key gives the key in a file of work, which it makes.
func (o *Overlay) key(file string) (string, error) {
	out, err := o.run("node", "key", "--identity", filepath.Join(o.work, file))
	return strings.TrimSpace(out), err
}

func (o *Overlay) run(args ...string) (string, error) {
	cmd := exec.Command(o.heddle, args...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("heddle %s: %w\n%s", strings.Join(args[:2], " "), err, log.String())
	}
	return string(out), nil
}

// Node starts an overlay node on a host at the address, with these modes, and makes a pass that leads to the servers.
func (o *Overlay) Node(ctx context.Context, host *lab.Host, at netip.Addr, servers []netip.AddrPort, modes ...string) (*Process, error) {
	name := host.Name()
	key, err := o.key(name + "/identity.pem")
	if err != nil {
		return nil, err
	}
	listen := netip.AddrPortFrom(at, NodePort).String()
	run := []string{"node", "run", "--name", name, "--listen", listen, "--identity", filepath.Join(o.work, name, "identity.pem"), "--grantor", o.grantor}
	grant := []string{"node", "grant", o.device, "--identity", filepath.Join(o.work, "grantor/identity.pem"), "--until", "24h",
		"--name", name, "--node", key, "--address", listen}
	for _, server := range servers {
		grant = append(grant, "--to", server.String())
	}
	for _, mode := range modes {
		run, grant = append(run, "--mode", mode), append(grant, "--mode", mode)
		if mode == "nat" {
			run = append(run, "--set-forwarding")
		}
	}
	pass, err := o.run(grant...)
	if err != nil {
		return nil, err
	}
	o.Passes[name] = filepath.Join(o.work, name+".json")
	if err := os.WriteFile(o.Passes[name], []byte(pass), 0o600); err != nil {
		return nil, err
	}
	p, err := Start(ctx, host, o.heddle, run...)
	if err != nil {
		return nil, err
	}
	return p.started(p.AwaitLog(ctx, "listens on"))
}

// StreamServer serves a TCP program of the host to the client under a name, as `heddle stream serve` does. key is what
// StreamDial needs.
func (o *Overlay) StreamServer(ctx context.Context, host *lab.Host, name string, at netip.AddrPort, to netip.AddrPort, flags ...string) (p *Process, key string, err error) {
	file := filepath.Join(host.Name(), "identity.pem")
	if key, err = o.key(file); err != nil {
		return nil, "", err
	}
	p, err = Start(ctx, host, o.heddle, append([]string{"stream", "serve", "--name", name, "--to", to.String(), "--listen", at.String(),
		"--allow", o.device, "--identity", filepath.Join(o.work, file)}, flags...)...)
	if err != nil {
		return nil, "", err
	}
	p, err = p.started(p.AwaitLog(ctx, "listening on"))
	return p, key, err
}

// StreamDial runs `heddle stream dial NAME` over the nodes on the hosts of these names. Programs connect to listen.
func (o *Overlay) StreamDial(ctx context.Context, host *lab.Host, name string, listen, server netip.AddrPort, key string, nodes []string, flags ...string) (*Process, error) {
	args := []string{"HEDDLE_HOME=" + filepath.Join(o.work, "device"), o.heddle, "stream", "dial", name, "--listen", listen.String(),
		"--to", server.String(), "--key", key}
	for _, node := range nodes {
		args = append(args, "--via", node+"=node:"+o.Passes[node])
	}
	p, err := Start(ctx, host, "env", append(args, flags...)...)
	if err != nil {
		return nil, err
	}
	return p.started(p.AwaitLog(ctx, "listening on"))
}
