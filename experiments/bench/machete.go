package bench

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

var (
	streamEndpoint = netip.AddrPortFrom(lab.ServerAddr, peer.StreamPort)
	kernelEndpoint = netip.AddrPortFrom(lab.ServerAddr, peer.StreamPort+1) // for the kernel's MPTCP
	streamLocal    = netip.MustParseAddrPort("127.0.0.1:2222")
	sinkLocal      = netip.MustParseAddrPort("127.0.0.1:9000") // behind `heddle stream serve`
	sinkOpen       = netip.AddrPortFrom(lab.ServerAddr, 9001)  // for plain TCP
)

// Machete is the evaluation of MACHETE (section IV): streams over overlay nodes against plain TCP, by schedule, shares,
// backend, number of paths and size.
func Machete() Bench {
	return Bench{name: "machete", topologies: macheteTopologies, paper: machetePaper}
}

const (
	fast100 = 100_000_000
	mega    = 1_000_000
)

func macheteTopologies(quick bool) []*topology {
	size := int64(60 * mega)
	unlimited := int64(1000 * mega)
	if quick {
		size, unlimited = 25*mega, 300*mega
	}
	return []*topology{twoPaths(size), unequalPaths(2 * size), threePaths(size), noLimit(unlimited), warmMessage(), nodeDies(size),
		macheteRegions(quick), macheteSetup(quick)}
}

// overlay is a topology and its servers.
type overlay struct {
	*topology
	branches []lab.Branch
	modes    []string
	nodes    map[string]*peer.Process
	made     *peer.Overlay
	inside   *sink // behind the stream
	open     *sink // for plain TCP
	usual    run   // defaults of its cases
}

func newOverlay(name string, modes []string, branches ...lab.Branch) *overlay {
	o := &overlay{branches: branches, modes: modes, nodes: map[string]*peer.Process{}}
	o.topology = &topology{name: name, world: lab.Overlay("machete-"+name, branches...), serve: o.start}
	return o
}

// alike returns branches of 100 Mbit/s with the same delays.
func alike(near, far time.Duration, names ...string) (branches []lab.Branch) {
	for _, name := range names {
		branches = append(branches, lab.Branch{Name: name, Near: near, Far: far, Rate: fast100})
	}
	return branches
}

// direct is the branch that plain TCP takes; it has no node.
const direct = "direct"

func (o *overlay) start(ctx context.Context, s *stage) (err error) {
	if o.made, err = peer.NewOverlay(s.heddle, s.work, s.Instance); err != nil {
		return err
	}
	server := s.Host("server")
	if o.inside, err = newSink(ctx, server, sinkLocal); err != nil {
		return err
	}
	if o.open, err = newSink(ctx, server, sinkOpen); err != nil {
		return err
	}
	if _, err = o.made.StreamServer(ctx, "server", streamEndpoint, "stream", "serve", "--name", "stripe", "--to", sinkLocal.String()); err != nil {
		return err
	}
	if slices.Contains(o.modes, "nat") {
		if _, err = o.made.StreamServer(ctx, "server", kernelEndpoint, "stream", "serve", "--name", "kernel", "--to", sinkLocal.String(), "--backend", "mptcp"); err != nil {
			return err
		}
	}
	for i, branch := range o.branches {
		if branch.Name != direct {
			if err := o.startNode(ctx, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *overlay) startNode(ctx context.Context, i int) (err error) {
	var modes []string
	for _, mode := range o.modes {
		modes = append(modes, "--mode", mode)
	}
	name := o.branches[i].Name
	if o.nodes[name], err = o.made.Node(ctx, name, modes...); err == nil {
		_, err = o.made.Pass(ctx, name, name, lab.NodeAddr(i), append(modes, "--to", streamEndpoint.String(), "--to", kernelEndpoint.String())...)
	}
	return err
}

// names returns the hosts of the first n nodes.
func (o *overlay) names(n int) (names []string) {
	for _, branch := range o.branches {
		if branch.Name != direct && len(names) < n {
			names = append(names, branch.Name)
		}
	}
	return names
}

// run is one way to deliver files to the server.
type run struct {
	files []file // one after the other
	// nodes are the hosts of the nodes, none for plain TCP; flags go to `heddle stream dial`.
	nodes []string
	flags []string
	// device restricts plain TCP to one path; to is its destination, if that is not the server.
	device  string
	to      netip.AddrPort
	during  func() error // called once a third has been sent
	figures func(o *overlay, f file, d delivery) []figure
}

// file is a delivery. The figures of an unnamed file have no names.
type file struct {
	name  string
	bytes int64
	once  bool // in the first round only
}

func one(bytes int64) []file { return []file{{bytes: bytes}} }

func (o *overlay) add(name string, r run) {
	if r.files == nil {
		r.files = o.usual.files
	}
	if r.figures == nil {
		r.figures = o.usual.figures
	}
	o.cases = append(o.cases, variant{name, func(ctx context.Context, s *stage, round int) (figures []figure, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		to, at := o.open, sinkOpen
		if r.to.IsValid() {
			at = r.to
		}
		if len(r.nodes) > 0 {
			to, at = o.inside, streamLocal
			name, endpoint := "stripe", streamEndpoint
			if slices.Contains(r.flags, "--backend") {
				name, endpoint = "kernel", kernelEndpoint
			}
			dial, err := o.made.StreamDial(ctx, name, streamLocal, "server", endpoint, slices.Concat(peer.Over(r.nodes...), r.flags)...)
			if err != nil {
				return nil, err
			}
			defer dial.Stop()
			defer func() {
				if err != nil {
					err = errors.Join(err, logs(dial))
				}
			}()
		}
		if slices.Contains(r.flags, "--warm") { // discard the session that proved the paths at the start
			if _, err := to.deliver(ctx, s.Host("client"), r.device, at, 1, nil); err != nil {
				return nil, err
			}
		}
		if err := s.ResetLateness(); err != nil {
			return nil, err
		}
		for _, f := range r.files {
			if f.once && round > 1 {
				continue
			}
			d, err := to.deliver(ctx, s.Host("client"), r.device, at, f.bytes, r.during)
			if err != nil {
				return nil, err
			}
			figures = append(figures, r.figures(o, f, d)...)
		}
		return figures, nil
	}})
}

// speed returns the throughput of a delivery.
func speed(_ *overlay, f file, d delivery) []figure {
	return []figure{throughput(f.name, float64(f.bytes*8)/d.answered.Seconds())}
}

func milliseconds(name string, d time.Duration) figure {
	return figure{name, "time", "ms", float64(d.Microseconds()) / 1000}
}

func elapsed(_ *overlay, f file, d delivery) []figure {
	return []figure{milliseconds(f.name, d.answered)}
}

// kernel returns the flags for a backend on the kernel's MPTCP.
func kernel(backend string) []string { return []string{"--backend", backend, "--set-path-manager"} }

// striped returns the flags for a schedule and shares.
func striped(schedule, shares string) []string {
	return []string{"--schedule", schedule, "--shares", shares}
}

// twoPaths compares schedules and backends over two equal paths, as in section IV-B; plain TCP takes one of them.
func twoPaths(size int64) *topology {
	o := newOverlay("two", []string{"forward", "nat"}, alike(5*time.Millisecond, 0, "one", "two")...)
	o.usual = run{files: one(size), figures: speed}
	o.add("tcp", run{})
	for _, schedule := range []string{"fast", "strict", "weighted"} {
		o.add(schedule, run{nodes: o.names(2), flags: striped(schedule, "none")})
	}
	for _, backend := range []string{"mptcp", "mptcp-nat"} {
		o.add(backend, run{nodes: o.names(2), flags: kernel(backend)})
	}
	return o.topology
}

// unequalPaths has delays of 10 and 75 ms each way; the baseline is plain TCP over the slower path.
func unequalPaths(size int64) *topology {
	o := newOverlay("unequal", []string{"forward"},
		append(alike(10*time.Millisecond, 0, "near"), alike(75*time.Millisecond, 0, "far")...)...)
	o.usual = run{files: one(size), figures: speed}
	o.add("tcp-far", run{device: o.branches[1].Device()})
	o.add("tcp-near", run{device: o.branches[0].Device()})
	for _, schedule := range []string{"strict", "fast"} {
		o.add(schedule, run{files: one(2 * size), nodes: o.names(2), flags: striped(schedule, "none")})
	}
	return o.topology
}

// threePaths compares share schemes over three equal paths; the baseline is no shares.
func threePaths(size int64) *topology {
	o := newOverlay("three", []string{"forward"}, alike(5*time.Millisecond, 0, "one", "two", "three")...)
	o.usual = run{files: one(size), figures: speed}
	for _, shares := range []string{"none", "2of3", "shamir:2of3", "xor:3"} {
		o.add(shares, run{nodes: o.names(3), flags: []string{"--shares", shares}})
	}
	return o.topology
}

// noLimit has two unlimited paths. The baseline is TCP through a user-space forwarder on the first node that copies 256
// KiB at a time. Other cases copy less, or encrypt as a stream does: TLS on each hop, and ssh if installed.
func noLimit(size int64) *topology {
	o := newOverlay("unlimited", []string{"forward", "nat"}, lab.Branch{Name: "one"}, lab.Branch{Name: "two"})
	o.usual = run{files: one(size), figures: speed}
	o.serve = func(ctx context.Context, s *stage) error {
		if err := o.start(ctx, s); err != nil {
			return err
		}
		if err := errors.Join(forwardPlain(ctx, s), forwardTLS(ctx, s)); err != nil || !haveSSH() {
			return err
		}
		return forwardSSH(ctx, s)
	}
	o.add("forwarder", run{to: forwardLocal})
	o.add("tcp", run{})
	o.add("forwarders-tls", run{to: hopLocal})
	o.add("fast", run{nodes: o.names(2), flags: striped("fast", "none")})
	o.add("strict", run{nodes: o.names(2), flags: striped("strict", "none")})
	o.add("one-path", run{nodes: o.names(1), flags: striped("fast", "none")})
	o.add("mptcp", run{nodes: o.names(2), flags: kernel("mptcp")})
	for _, p := range smallPieces {
		o.add(p.name, run{to: p.at})
	}
	if haveSSH() {
		o.add("ssh", run{to: sshLocal})
	}
	return o.topology
}

// warmMessage is the time from the first byte of a message of 1 KB until the answer, over a session dialled ahead, in
// round trips of the path (20 ms).
func warmMessage() *topology {
	o := newOverlay("message", []string{"forward"}, alike(5*time.Millisecond, 5*time.Millisecond, "one", "two", "three")...)
	o.usual = run{files: one(1000), figures: func(o *overlay, _ file, d delivery) []figure {
		return []figure{{"", "time", "round trips", d.answered.Seconds() / (2 * (o.branches[0].Near + o.branches[0].Far)).Seconds()}}
	}}
	o.add("tcp", run{})
	for _, shares := range []string{"none", "2of3", "xor:3"} {
		o.add(shares, run{nodes: o.names(3), flags: []string{"--shares", shares}})
	}
	return o.topology
}

// nodeDies is the longest time without a byte at the server, with and without the death of a node.
func nodeDies(size int64) *topology {
	o := newOverlay("death", []string{"forward"}, alike(10*time.Millisecond, 10*time.Millisecond, "one", "two", "three")...)
	o.usual = run{files: one(size), figures: func(o *overlay, _ file, _ delivery) []figure {
		return []figure{{"", "longest stall", "ms", float64(o.inside.longestStall().Microseconds()) / 1000}}
	}}
	lives := run{nodes: o.names(3), flags: []string{"--shares", "2of3"}}
	dies := lives
	dies.during = func() error {
		o.nodes["two"].Kill()
		return nil
	}
	o.add("lives", lives)
	o.add("dies", dies)
	died := &o.cases[1]
	measure := died.measure
	died.measure = func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		figures, err := measure(ctx, s, seed)
		return figures, errors.Join(err, o.startNode(ctx, 1))
	}
	return o.topology
}

// regions are the round trips in ms from Portugal and to Ireland of the paper's places for nodes, in its order. They
// are typical values: the paper shows its own only in a plot (figure 4).
var regions = []struct {
	name      string
	near, far int
}{
	{"frankfurt", 36, 24}, {"virginia", 96, 76}, {"california", 160, 136}, {"oregon", 158, 128},
	{"tokyo", 236, 212}, {"seoul", 262, 240}, {"singapore", 196, 176}, {"sydney", 296, 274},
}

// fromPortugal returns a branch for plain TCP to Ireland, and one for each node.
func fromPortugal() []lab.Branch {
	half := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond / 2 }
	branches := []lab.Branch{{Name: direct, Near: half(40), Rate: fast100}}
	for _, r := range regions {
		branches = append(branches, lab.Branch{Name: r.name, Near: half(r.near), Far: half(r.far), Rate: fast100})
	}
	return branches
}

// macheteFiles are the sizes of table III, with the paper's times in milliseconds.
var macheteFiles = []struct {
	name              string
	bytes             int64
	tcp, fast, strict float64
}{
	{"1B", 1, 49, 81, 97}, {"10B", 10, 49, 95, 94}, {"100B", 100, 49, 87, 98}, {"1KB", 1000, 49, 94, 90},
	{"10KB", 10_000, 49, 181, 122}, {"100KB", 100_000, 49, 265, 201}, {"1MB", mega, 304, 382, 409},
	{"10MB", 10 * mega, 1644, 2295, 3106}, {"100MB", 100 * mega, 11556, 18836, 23452}, {"1GB", 1000 * mega, 121069, 172215, 218332},
}

// macheteRegions is table III and figure 5: the time for files of all sizes against plain TCP, session set-up included.
// Cases are nodes in Frankfurt and California by schedule and kernel backend, with Virginia by shares, and fast over
// two to eight nodes, the nearest first. The 1 GB file is sent in one round only, since it takes long.
func macheteRegions(quick bool) *topology {
	o := newOverlay("regions", []string{"forward", "nat"}, fromPortugal()...)
	var sizes []file
	for _, f := range macheteFiles {
		if !quick || f.name == "1KB" || f.name == "1MB" {
			sizes = append(sizes, file{f.name, f.bytes, f.bytes >= 1000*mega})
		}
	}
	o.usual = run{files: sizes, figures: elapsed}
	stream := func(name string, nodes []string, schedule, shares string) {
		o.add(name, run{nodes: nodes, flags: append(striped(schedule, shares), "--warm", "0")})
	}
	o.add("tcp", run{})
	// The farther path by itself, without the files that would take too long.
	far := slices.DeleteFunc(slices.Clone(sizes), func(f file) bool { return f.bytes > 10*mega })
	o.add("tcp-far", run{files: far, device: lab.Branch{Name: diverse[1]}.Device()})
	stream("fast", diverse[:2], "fast", "none")
	stream("strict", diverse[:2], "strict", "none")
	counts := []int{2, 8}
	if !quick {
		for _, shares := range []string{"2of3", "shamir:2of3", "xor:3"} {
			stream(shares, diverse, "fast", shares)
		}
		for _, backend := range []string{"mptcp", "mptcp-nat"} {
			o.add(backend, run{nodes: diverse[:2], flags: append(kernel(backend), "--warm", "0")})
		}
		counts = []int{2, 3, 4, 5, 6, 7, 8}
	}
	for _, n := range counts {
		stream("paths-"+strconv.Itoa(n), o.names(n), "fast", "none")
	}
	return o.topology
}

// diverse are the nodes whose paths had the fewest common networks in the paper, and one more for shares.
var diverse = []string{"frankfurt", "california", "virginia"}

// macheteSetup is figure 6: the time to set up and close a session by the number of nodes, which are dialled in
// parallel. The set-up ends half a round trip of the farthest path before a byte split over all paths arrives.
func macheteSetup(quick bool) *topology {
	counts := []int{1, 2, 3, 4, 5, 6, 7, 8}
	if quick {
		counts = []int{2, 8}
	}
	o := newOverlay("setup", []string{"forward"}, fromPortugal()...)
	o.usual = run{files: one(1)}
	flags := append(striped("strict", "none"), "--warm", "0")
	for _, n := range counts {
		o.add(strconv.Itoa(n), run{nodes: o.names(n), flags: flags, figures: func(o *overlay, _ file, d delivery) []figure {
			var farthest time.Duration
			for _, branch := range o.branches[1 : n+1] {
				farthest = max(farthest, 2*(branch.Near+branch.Far))
			}
			up := d.arrived - farthest/2
			return []figure{milliseconds("up", up), {"up-rtt", "time", "round trips", up.Seconds() / farthest.Seconds()}, milliseconds("down", d.closed)}
		}})
	}
	return o.topology
}

// machetePaper returns the paper's result for a case, relative to plain TCP.
func machetePaper(name string) *float64 {
	schedule, size, _ := strings.Cut(strings.TrimPrefix(name, "regions/"), "/")
	for _, f := range macheteFiles {
		ratio := map[string]float64{"fast": f.fast / f.tcp, "strict": f.strict / f.tcp}[schedule]
		if f.name == size && ratio > 0 {
			return &ratio
		}
	}
	return nil
}
