package tenants

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"heddle/internal/sysctl"
	"heddle/lab"
	"heddle/lab/peer"
)

// world is a cloud whose tenants are reached in one way. The router isp is the observer.
type world struct {
	way     string
	in      *lab.Instance
	work    string
	stop    context.CancelFunc // ends the servers
	cloud   *peer.Cloud
	serving *peer.Process
	root    string // what all tenants serve
}

// port is where clients come to.
const port = 443

// begin makes the world of a way.
func begin(ctx context.Context, heddle, way string, names []string) (*world, error) {
	w := &world{way: way}
	ctx, w.stop = context.WithCancel(ctx)
	if err := w.start(ctx, heddle, names); err != nil {
		return nil, errors.Join(err, w.end())
	}
	return w, nil
}

func (w *world) start(ctx context.Context, heddle string, names []string) (err error) {
	if w.work, err = os.MkdirTemp("", "heddle-tenants-"); err != nil {
		return err
	}
	w.root = filepath.Join(w.work, "pages")
	if err = errors.Join(os.Mkdir(w.root, 0o755), os.Chmod(w.work, 0o755), os.WriteFile(filepath.Join(w.root, "index.html"), page(), 0o644)); err != nil {
		return err
	}
	if w.in, err = lab.Up(ctx, plan(w.way, names), lab.Options{}); err != nil {
		return err
	}
	devices, err := peer.NewOverlay(heddle, w.work, w.in)
	if err != nil {
		return err
	}
	if w.cloud, err = peer.NewCloud(ctx, devices, filepath.Join(w.work, "cloud"), lab.CloudGateway); err != nil {
		return err
	}
	if w.way == OVS {
		if err = peer.OpenVSwitch(ctx, w.in.Host("cloud"), bridge); err != nil {
			return err
		}
	}
	if err = w.cloud.Replace(w.settings()...); err != nil {
		return err
	}
	if w.serving, err = w.cloud.Serve(ctx); err != nil {
		return err
	}
	for i, name := range names {
		if err = w.add(ctx, i+1, name); err != nil {
			return fmt.Errorf("tenant %s: %w", name, err)
		}
	}
	return nil
}

// plan is a cloud with a machine for each tenant, which may have a narrow link.
func plan(way string, names []string) lab.World {
	if way == OVS {
		return narrow(lab.BridgedCloud("tenants", names...))
	}
	return narrow(lab.WithIPv6(lab.OpenCloud("tenants", names...)))
}

func narrow(of lab.World) lab.World {
	for i, l := range of.Links {
		of.Links[i].MTU = kinds[l.Name].mtu
	}
	return of
}

// page is what all tenants serve: some more than a connection may send before the client has acknowledged anything.
func page() []byte {
	return []byte("<!DOCTYPE html>\n<html lang=\"en\"><head><title>A page</title></head><body>\n" + strings.Repeat("<p>Each tenant serves these words.</p>\n", 1000) + "</body></html>\n")
}

// bridge is that of [OVS].
const bridge = "br0"

// settings are those of the cloud's file.
func (w *world) settings() (pairs []string) {
	set := func(before, after string) { pairs = append(pairs, before, after) }
	mode := w.way
	switch {
	case w.way == Direct:
		mode = Proxy
	case moves(w.way):
		mode = Handoff
	}
	set(`# gateway-mode = "auto"`, fmt.Sprintf("gateway-mode = %q", mode))
	switch w.way {
	case V6:
		set(`# v6-prefix = "2001:db8:77:1::/64"`, fmt.Sprintf("v6-prefix = %q", lab.CloudPrefix))
		set(`# v6-device = "eth0"`, `v6-device = "isp"`)
	case Handoff6:
		set(fmt.Sprintf("gateways = [%q]", lab.CloudGateway), fmt.Sprintf("gateways = [%q, %q]", lab.CloudGateway, lab.CloudGateway6))
	case NFT:
		set(`# gateway-switch = "auto"`, `gateway-switch = "nft"`)
	case OVS:
		set(`# gateway-switch = "auto"`, `gateway-switch = "ovs"`)
		set(`# gateway-bridge = "br0"`, fmt.Sprintf("gateway-bridge = %q", peer.BridgeSocket(w.in.Host("cloud"), bridge)))
	}
	return pairs
}

func (w *world) end() error {
	w.stop()
	var err error
	if w.in != nil {
		err = w.in.Down()
	}
	if w.work != "" {
		err = errors.Join(err, os.RemoveAll(w.work))
	}
	return err
}

func site(name string) string { return name + ".example" }

// add starts all on the machine of the tenant with a number, which reaches clients as its kind says.
func (w *world) add(ctx context.Context, number int, name string) error {
	host, k := w.in.Host(name), kinds[name]
	work := filepath.Join(w.work, "servers", name)
	if err := errors.Join(os.MkdirAll(work, 0o755), w.set(ctx, host, k)); err != nil {
		return err
	}
	if err := peer.StartSite(ctx, k.server, host, w.root, work); err != nil {
		return err
	}
	s := w.cloud.At(name, site(name), host.Addrs()[0])
	s.Listen = netip.AddrPortFrom(host.Addrs()[0], port)
	agent := netip.AddrPortFrom(host.Addrs()[0], 4444)
	if w.way == Handoff6 {
		agent = netip.AddrPortFrom(lab.CloudSite6(number), 4444)
	}
	switch w.way {
	case Pass:
		s.To = "http://" + netip.AddrPortFrom(host.Addrs()[0], 80).String()
		s.Host, s.Socket = "cloud", filepath.Join(work, "sidecar")
	case Handoff, Handoff6, NFT, OVS:
		s.Socket, s.Addresses = filepath.Join(work, "sidecar"), []string{"handoff:" + agent.String()}
	case V6:
		if err := host.Own(lab.CloudPrefix); err != nil {
			return err
		}
		s.Listen, s.Addresses = netip.AddrPortFrom(netip.IPv6Unspecified(), port), []string{"v6:" + lab.CloudSite6(number).String()}
	}
	if err := w.cloud.Enrol(ctx, s); err != nil {
		return err
	}
	flags, err := w.front(ctx, k.front, s, work)
	if err == nil && moves(w.way) {
		_, err = w.cloud.Agent(ctx, s, agent, flags...)
	}
	return err
}

// set sets a machine as its kind is.
func (w *world) set(ctx context.Context, host *lab.Host, k kind) error {
	for name, value := range k.settings {
		err := host.Do(func() error { return sysctl.Set("/proc/sys/net/"+name, value) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6, or without that congestion control
			return fmt.Errorf("net/%s = %s: %w", name, value, err)
		}
	}
	if len(k.route) == 0 {
		return nil
	}
	for _, a := range host.Addrs() {
		out, err := host.Command(ctx, "ip", append([]string{family(a), "route", "change", "default", "via", a.Prev().String()}, k.route...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip route: %w: %s", err, out)
		}
	}
	return nil
}

func family(a netip.Addr) string {
	if a.Is6() {
		return "-6"
	}
	return "-4"
}
