package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/lab"
	"heddle/lab/peer"
	"heddle/observe"
)

// mostEstablished is a fifth of the connections that the paper's switch has rules for.
const mostEstablished = 100_000

// eachSite is how many connections one site has at most: a process has a descriptor for each, and some machines allow 20,000.
const eachSite = 12_500

// crowded are the clients' addresses, of which each site's crowd has a /16.
var crowded = netip.MustParsePrefix("10.96.0.0/11")

// gatewayEstablished is what a gateway has of connections that stay. Clients of several sites connect by handoff, and ask once. When all are connected, all
// ask again by the same connections, and the gateway's machine counts and captures.
func gatewayEstablished(quick bool) *topology {
	counts := []int{10_000, mostEstablished}
	if quick {
		counts = []int{1000}
	}
	e := &established{sites: make([]establishedSite, max(2, (slices.Max(counts)+eachSite-1)/eachSite))}
	t := &topology{name: "established", world: e.world(), serve: e.start}
	for _, n := range counts {
		t.cases = append(t.cases, variant{strconv.Itoa(n), func(ctx context.Context, _ *stage, _ int) ([]figure, error) { return e.measure(ctx, n) }})
	}
	return t
}

type established struct {
	pseudonymServers
	serving *peer.Process
	sites   []establishedSite
}

type establishedSite struct {
	own            peer.Pseudonym
	query          string
	sidecar, agent *peer.Process
}

func siteHost(i int) string { return fmt.Sprintf("site%d", i+1) }

func (e *established) world() lab.World {
	var hosts []string
	for i := range e.sites {
		hosts = append(hosts, siteHost(i))
	}
	w := lab.OpenCloud("established", hosts...)
	for i := range w.Hosts {
		if h := &w.Hosts[i]; h.Name == "isp" {
			h.Routes = append(h.Routes, lab.Route{To: crowded, Via: netip.MustParseAddr("10.1.0.2"), Device: "client"})
		}
	}
	return w
}

// start starts the cloud, and each site with its own nginx, sidecar and agent.
func (e *established) start(ctx context.Context, s *stage) error {
	e.pseudonymServers = pseudonymServers{stage: s}
	if err := e.Host("client").Own(crowded); err != nil {
		return err
	}
	devices, err := peer.NewOverlay(e.heddle, e.work, e.Instance)
	if err != nil {
		return err
	}
	if e.cloud, err = peer.NewCloud(ctx, devices, filepath.Join(e.work, "cloud-files"), lab.CloudGateway); err != nil {
		return err
	}
	if err := e.cloud.Replace(`# gateway-mode = "auto"`, `gateway-mode = "handoff"`, `# gateway-switch = "auto"`, `gateway-switch = "bpf"`); err != nil {
		return err
	}
	if e.serving, err = e.cloud.Serve(ctx); err != nil {
		return err
	}
	for i := range e.sites {
		if err := e.startSite(ctx, i); err != nil {
			return fmt.Errorf("%s: %w", siteHost(i), err)
		}
	}
	return e.Host("cloud").Do(func() error { return nft.Change(countController) })
}

func (e *established) startSite(ctx context.Context, i int) (err error) {
	host, site := siteHost(i), &e.sites[i]
	name, inside := host+".example", e.Host(host).Addrs()[0]
	root, work := filepath.Join(e.work, host+"-objects"), filepath.Join(e.work, host+"-nginx")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(work, 0o755), os.WriteFile(filepath.Join(root, smallest.name), make([]byte, smallest.bytes), 0o644)); err != nil {
		return err
	}
	if _, err := peer.WebServer(ctx, e.Host(host), root, work, name); err != nil {
		return err
	}
	s, at := e.cloud.At(host, name, inside), netip.AddrPortFrom(inside, agentPort)
	s.Socket, s.Addresses = filepath.Join(e.work, host+"-sidecar"), []string{"handoff:" + at.String()}
	if site.sidecar, err = e.cloud.Add(ctx, s); err != nil {
		return err
	}
	if site.agent, err = e.cloud.Agent(ctx, s, at); err != nil {
		return err
	}
	if site.own, err = e.cloud.Get(ctx, "client", name); err != nil {
		return err
	}
	w, err := e.visit(site.own)
	if err != nil {
		return err
	}
	w.dial, site.query = e.to(netip.AddrPortFrom(lab.CloudGateway, 443)), w.query
	return e.serving.Await(ctx, func() error { // the gateway learns of the site a little later
		_, err := w.fetch(ctx, smallest)
		return err
	})
}

// measure lets n clients connect and ask, and then ask again.
func (e *established) measure(ctx context.Context, n int) (figures []figure, err error) {
	before, err := e.controller()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	all, err := e.startCrowds(ctx, n)
	defer func() { err = errors.Join(err, all.Close()) }()
	if err != nil {
		return nil, err
	}
	first, err := all.answer()
	took := time.Since(began).Seconds()
	if err != nil || first.Answered < n {
		return nil, errors.Join(fmt.Errorf("%d of %d clients are connected: %s", first.Answered, n, first.Error), err)
	}
	opened, err := e.controller()
	if err != nil {
		return nil, err
	}
	opening := opened.since(before)
	figures = []figure{{"clients", "connections", "", float64(first.Answered)}, {"again", "connections", "", float64(first.Again)},
		{"time", "time", "s", took}, {"rate", "rate", "connections/s", float64(n) / took},
		{"opening/in", "opening", "bytes/connection", float64(opening.in.bytes) / float64(n)},
		{"opening/out", "opening", "bytes/connection", float64(opening.out.bytes) / float64(n)}}
	parts := []func() ([]figure, error){e.counted, func() ([]figure, error) { return e.askAgain(ctx, all) }, func() ([]figure, error) { return e.memory(all) }}
	for _, part := range parts {
		more, err := part()
		if err != nil {
			return nil, err
		}
		figures = append(figures, more...)
	}
	return figures, nil
}

func (e *established) startCrowds(ctx context.Context, n int) (all crowds, err error) {
	for i, site := range e.sites {
		b := crowded.Addr().As4()
		b[1] += byte(i)
		p, err := startCrowd(ctx, e.stage, e.Host("client"), Crowd{To: netip.AddrPortFrom(lab.CloudGateway, 443), Name: site.own.Name, Query: site.query,
			Root: e.cloud.Root(), Certificate: site.own.Certificate(), Key: site.own.Key(), From: netip.PrefixFrom(netip.AddrFrom4(b), 16), Clients: (n + i) / len(e.sites)})
		if p != nil {
			all = append(all, p)
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// counted counts the connections in the switch, and at the sites' machines.
func (e *established) counted() (figures []figure, err error) {
	led, memory, err := e.led()
	if err != nil {
		return nil, err
	}
	open := 0
	for i := range e.sites {
		err := e.Host(siteHost(i)).Do(func() error {
			all, err := netlink.SocketDiagTCP(unix.AF_INET)
			for _, s := range all {
				if s.State == netlink.TCP_ESTABLISHED && isCrowd(s.ID.Destination.To4()) {
					open++
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return []figure{{"switch", "connections", "", float64(led)}, {"sites", "connections", "", float64(open)}, {"memory/switch", "memory", "MB", memory}}, nil
}

func isCrowd(address []byte) bool {
	from, _ := netip.AddrFromSlice(address)
	return crowded.Contains(from)
}

// led counts the clients' connections that the switch leads, and returns the memory of its maps in MB.
func (e *established) led() (n int, memory float64, err error) {
	m, err := openBPFRules(e.Host("cloud"))
	if err != nil {
		return 0, 0, err
	}
	defer m.Close()
	entries := m.to.Iterate()
	for key, value := []byte(nil), []byte(nil); entries.Next(&key, &value); {
		const state = 24 // of the connection, which has not ended while it is 0
		if isCrowd(key[12:16]) && binary.NativeEndian.Uint32(value[state:]) == 0 {
			n++
		}
	}
	err = entries.Err()
	for _, one := range []*ebpf.Map{m.to, m.back} {
		about, failed := one.Info()
		if err = errors.Join(err, failed); failed == nil {
			held, _ := about.Memlock()
			memory += float64(held) / 1e6
		}
	}
	return n, memory, err
}

// askAgain lets all clients ask again. Meanwhile it counts what the gateway's own sockets get and send, and captures the links between the gateway's machine and
// the sites'.
func (e *established) askAgain(ctx context.Context, all crowds) ([]figure, error) {
	dir, err := os.MkdirTemp(e.work, "captures-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	places := map[string]string{}
	for i := range e.sites {
		places[siteHost(i)] = "cloud/" + siteHost(i)
	}
	before, err := e.controller()
	if err != nil {
		return nil, err
	}
	stop, err := e.CaptureAll(ctx, dir, places)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var second crowdAnswer
	if err = all.order(); err == nil {
		second, err = all.answer()
	}
	took := time.Since(began)
	if err = errors.Join(err, stop()); err != nil {
		return nil, err
	}
	after, err := e.controller()
	if err != nil {
		return nil, err
	}
	if second.Error != "" {
		e.say("a client failed, or had to try again: %s", second.Error)
	}
	direct, relayed, err := captured(dir, places)
	sum := after.since(before)
	return []figure{{"answers", "connections", "", float64(second.Answered)}, {"answers/rate", "answers", "requests/s", float64(second.Answered) / took.Seconds()},
		{"controller/packets", "packets", "packets", float64(sum.in.packets + sum.out.packets)}, {"controller/bytes", "bytes", "bytes", float64(sum.in.bytes + sum.out.bytes)},
		{"captured/controller", "bytes", "bytes", relayed}, {"captured/direct", "bytes", "bytes", direct}}, err
}

// captured adds what the links to the sites carried in TCP: of the clients themselves, and of the gateway's machine but for what it tells agents and sidecars
// of its own.
func captured(dir string, places map[string]string) (direct, relayed float64, err error) {
	for name := range places {
		f, err := os.Open(filepath.Join(dir, name+".pcapng"))
		if err != nil {
			return 0, 0, err
		}
		c, err := observe.Read(f, observe.Options{})
		if err = errors.Join(err, f.Close()); err != nil {
			return 0, 0, err
		}
		for _, flow := range c.Flows {
			ends := []netip.AddrPort{flow.Client, flow.Server}
			own := func(a netip.AddrPort) bool { return a.Port() == agentPort || a.Port() == storePort }
			switch {
			case flow.Transport == "tcp" && slices.ContainsFunc(ends, func(a netip.AddrPort) bool { return crowded.Contains(a.Addr()) }):
				direct += float64(flow.Payload)
			case flow.Transport == "tcp" && !slices.ContainsFunc(ends, own):
				relayed += float64(flow.Payload)
			}
		}
	}
	return direct, relayed, nil
}

// storePort is where sidecars ask the cloud.
const storePort = 4481

// memory is what each part has while all connections are there.
func (e *established) memory(all crowds) (figures []figure, err error) {
	parts := map[string][]int{"gateway": {e.serving.PID()}}
	for _, s := range e.sites {
		parts["agents"], parts["sidecars"] = append(parts["agents"], s.agent.PID()), append(parts["sidecars"], s.sidecar.PID())
	}
	for _, p := range all {
		parts["clients"] = append(parts["clients"], p.cmd.Process.Pid)
	}
	for _, name := range []string{"gateway", "agents", "sidecars", "clients"} {
		sum := 0.0
		for _, pid := range parts[name] {
			mb, failed := resident(pid)
			sum, err = sum+mb, errors.Join(err, failed)
		}
		figures = append(figures, figure{"memory/" + name, "memory", "MB", sum})
	}
	return figures, err
}

// tally counts packets and their bytes, with headers of IP.
type tally struct{ packets, bytes uint64 }

// controllerCount is what the sockets of the gateway's machine got from clients at its port, and sent them.
type controllerCount struct{ in, out tally }

func (c controllerCount) since(before controllerCount) controllerCount {
	less := func(a, b tally) tally { return tally{a.packets - b.packets, a.bytes - b.bytes} }
	return controllerCount{less(c.in, before.in), less(c.out, before.out)}
}

// countTable counts at the hooks of what is for this machine and comes from it. Packets that the switch leads pass neither.
const countTable = "heddle_bench"

func countController(conn *nftables.Conn) error {
	table := nft.Inet(countTable)
	conn.AddTable(table)
	for name, at := range map[string]struct {
		hook *nftables.ChainHook
		of   nft.Side
	}{"in": {nftables.ChainHookInput, nft.Destination}, "out": {nftables.ChainHookOutput, nft.Source}} {
		chain := conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: at.hook, Priority: nftables.ChainPriorityFilter})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: nft.Join(nft.Address(lab.CloudGateway, at.of), nft.Protocol(unix.IPPROTO_TCP),
			nft.Equal(nft.LoadPort(at.of, 1), binary.BigEndian.AppendUint16(nil, 443)), nft.Count)})
	}
	return nil
}

func (e *established) controller() (c controllerCount, err error) {
	err = e.Host("cloud").Do(func() error {
		conn, err := nft.Connect()
		if err != nil {
			return err
		}
		table := nft.Inet(countTable)
		for name, to := range map[string]*tally{"in": &c.in, "out": &c.out} {
			rules, err := conn.GetRules(table, &nftables.Chain{Name: name, Table: table})
			if err != nil {
				return err
			}
			for _, r := range rules {
				for _, x := range r.Exprs {
					if n, ok := x.(*expr.Counter); ok {
						*to = tally{n.Packets, n.Bytes}
					}
				}
			}
		}
		return nil
	})
	return c, err
}
