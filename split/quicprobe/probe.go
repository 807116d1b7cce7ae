package quicprobe

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/path"
	"heddle/path/resolve"
)

// Options say whom to probe, by which paths, and how far to go.
type Options struct {
	// Server is HOST or HOST:PORT; the port is 443 where none is given.
	Server string
	// Via are the paths to change between; without any it is this machine's own way, and only ports change. Beside are
	// those that others ride.
	Via, Beside []path.Spec
	// Secret reads what a path of a name must show to be let in; nil where none has any.
	Secret func(name string) (path.Secret, error)
	// Identity is the file of this device's key, for paths by overlay nodes; empty is this user's own.
	Identity string
	// SNI is the name that the server's certificate must have; the host of Server where empty.
	SNI string
	// ALPN are the protocols to offer; h3 and hq-interop where empty.
	ALPN []string
	// Roots are the authorities to trust, nil for this machine's. Insecure accepts any certificate, and the report says so.
	Roots    *x509.CertPool
	Insecure bool
	// Get is what to download to measure throughput, such as /big-file; "/" where empty.
	Get string
	// STUN is the HOST:PORT of a server that tells each path's public address (RFC 8489); empty for none.
	STUN string
	// For bounds the time, MaxBytes the UDP payload sent and received, in bytes.
	For      time.Duration
	MaxBytes int64
	// Talk takes a line of progress now and then; nil for nobody.
	Talk io.Writer

	pace pace // zero for the usual one
}

// The usual bounds of a probe.
const (
	DefaultFor      = time.Minute
	DefaultMaxBytes = 128 << 20
)

// MaxPaths is the most addresses and ports that a probe tries at once, where no more paths are given.
const MaxPaths = 6

// pace is how long a probe waits for what.
type pace struct {
	question  time.Duration // for an answer to a version negotiation, each of two times
	handshake time.Duration
	answer    time.Duration // for an answer after a change
	dwell     time.Duration // on each path of a rotation, at least
	ramp      time.Duration // of a download before it counts
	window    time.Duration // of a download that counts
	periods   []time.Duration
	most      int           // addresses and ports at once
	early     int           // sessions that change from their beginning on
	stun      time.Duration // for an answer of the STUN server, at first
}

// usual is the pace towards strangers. What a server does not stand in a young session may last for a moment of the
// handshake only, and each early change meets another one.
var usual = pace{question: time.Second, handshake: 5 * time.Second, answer: 3 * time.Second, dwell: 100 * time.Millisecond,
	ramp: 600 * time.Millisecond, window: time.Second, most: MaxPaths, early: 6, stun: 500 * time.Millisecond,
	periods: []time.Duration{500 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}}

// usualPeriod is where the search for the shortest period begins.
const usualPeriod = 2 // index in pace.periods

type prober struct {
	Options
	name    string // of the server's certificate
	to      netip.AddrPort
	ways    []path.Path
	names   []string
	version uint32
	meter   *meter
	report  *Report
}

// Run probes the server. Where the probe began but could not be finished, it returns what it learned and the error;
// Stopped in the report is where one of its own bounds ended it, which is no error. Mistakes in the options are a
// [*path.Error] and no report.
func Run(ctx context.Context, o Options) (*Report, error) {
	p, err := newProber(o)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, p.For, errTime)
	defer cancel()
	p.meter = &meter{max: p.MaxBytes, stop: stop}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	err = p.all(ctx)
	p.report.Sent, p.report.Received = p.meter.sent.Load(), p.meter.received.Load()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if (errors.Is(err, errTime) || errors.Is(err, errBytes)) && p.report.Parameters != nil {
		p.report.Stopped, err = err.Error(), nil
	}
	if p.report.Parameters == nil {
		if ctx.Err() != nil {
			err = &path.Error{What: "probe of " + p.Server, Why: context.Cause(ctx).Error() + " before the server was heard"}
		}
		return nil, err
	}
	if err != nil {
		p.report.Stopped = err.Error()
	}
	p.report.Advice = advise(p.report)
	return p.report, err
}

var errTime = errors.New("the time of the probe is used up")

func newProber(o Options) (*prober, error) {
	p := &prober{Options: o}
	if p.pace.window == 0 {
		p.pace = usual
	}
	p.For, p.MaxBytes = cmp.Or(p.For, DefaultFor), cmp.Or(p.MaxBytes, DefaultMaxBytes)
	p.Get = cmp.Or(p.Get, "/")
	if len(p.ALPN) == 0 {
		p.ALPN = []string{"h3", "hq-interop"}
	}
	server, err := splitServer(o.Server, httpsPort)
	if err != nil {
		return nil, err
	}
	p.name = cmp.Or(o.SNI, server.Host)
	if !strings.HasPrefix(p.Get, "/") || strings.ContainsAny(p.Get, " \t\r\n") {
		return nil, &path.Error{What: fmt.Sprintf("get %q", p.Get), Why: "it is no path on a server", Hint: "write /big-file"}
	}
	if p.For < 0 || p.MaxBytes < 0 {
		return nil, &path.Error{What: "bounds", Why: "a time or a number of bytes below 0"}
	}
	for _, s := range o.Via {
		p.names = append(p.names, s.Name)
	}
	if len(p.names) == 0 {
		p.names = []string{"default"}
	}
	p.report = &Report{Server: o.Server, Insecure: o.Insecure, Offered: []string{}, Rotations: []Rotation{}, Notes: []string{}}
	return p, nil
}

// The ports of HTTP/3 and of STUN, where none is given.
const (
	httpsPort = 443
	stunPort  = 3478
)

// splitServer reads HOST, HOST:PORT, an address, or [ADDRESS]:PORT.
func splitServer(text string, usual uint16) (resolve.Server, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return resolve.Server{Host: a.String(), Port: usual}, nil
	}
	full := text
	if !strings.Contains(text, ":") {
		full += ":" + strconv.Itoa(int(usual))
	}
	s, err := resolve.Parse(full)
	if err != nil || strings.ContainsAny(s.Host, " /@") {
		return resolve.Server{}, &path.Error{What: fmt.Sprintf("server %q", text), Why: "not a host, or a host and a port", Hint: "write www.example.com or 192.0.2.1:443"}
	}
	return s, nil
}

// open makes the paths, and takes the first address of the server that all of them can send to.
func (p *prober) open(ctx context.Context) error {
	if len(p.Via) == 0 {
		p.ways = []path.Path{path.NewSystem(0)}
	} else {
		made, err := path.NewSet(slices.Concat(p.Via, p.Beside), path.Options{Secret: p.Secret, Identity: p.Identity})
		if err != nil {
			return err
		}
		for _, s := range p.Via {
			p.ways = append(p.ways, made[s.Name])
		}
	}
	addresses, err := lookup(ctx, p.Server, httpsPort)
	if err != nil {
		return err
	}
	var last error
	for _, to := range addresses {
		p.to = to
		if last = p.fits(ctx); last == nil {
			p.report.Address = to.String()
			return nil
		}
	}
	return last
}

// fits reports whether all paths can send QUIC's datagrams to p.to.
func (p *prober) fits(ctx context.Context) error {
	least := minDatagram + 28 // IPv4 and UDP headers
	if p.to.Addr().Is6() {
		least = minDatagram + 48
	}
	p.report.Paths = nil
	for i, way := range p.ways {
		info := way.Describe()
		if info.MTU != 0 && info.MTU < least {
			return &path.Error{What: "path " + p.names[i], Why: fmt.Sprintf("it carries packets of %d bytes, and QUIC needs %d (RFC 9000, section 14.1)", info.MTU, least),
				Hint: "raise the MTU of its device, or use another path"}
		}
		flow, err := path.Open(ctx, way, p.to)
		if err != nil {
			return err
		}
		flow.Close()
		info = way.Describe()
		p.report.Paths = append(p.report.Paths, PathReport{Name: p.names[i], Observer: info.Observer, MTU: info.MTU})
	}
	return nil
}

// lookup gives the addresses of a server, IPv4 first.
func lookup(ctx context.Context, server string, usual uint16) ([]netip.AddrPort, error) {
	s, err := splitServer(server, usual)
	if err != nil {
		return nil, err
	}
	found, err := resolve.System(ctx, s)
	slices.SortStableFunc(found, func(a, b netip.AddrPort) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
	return found, err
}

// all asks everything in turn.
func (p *prober) all(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{p.exits, p.hello, p.changes, p.rotations, p.throughput, p.early} {
		if err := phase(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (p *prober) talk(format string, args ...any) {
	if p.Talk != nil {
		fmt.Fprintf(p.Talk, format+"\n", args...)
	}
}

func (p *prober) note(format string, args ...any) {
	p.report.Notes = append(p.report.Notes, fmt.Sprintf(format, args...))
}

// hello asks for versions, and does the first handshake.
func (p *prober) hello(ctx context.Context) error {
	p.talk("asking %v for its versions", p.to)
	offered, err := p.askVersions(ctx)
	if err != nil {
		return err
	}
	for _, v := range offered {
		p.report.Offered = append(p.report.Offered, versionName(v))
	}
	p.version = version1
	switch {
	case len(offered) == 0:
		p.note("it answers no version negotiation, so nobody knows which versions it has beside that of the handshake")
	case slices.Contains(offered, version1):
	case slices.Contains(offered, version2):
		p.version = version2
	default:
		return &path.Error{What: "server " + p.Server, Why: "it has none of the versions of QUIC that this probe speaks, only " + strings.Join(p.report.Offered, ", "),
			Hint: "v1 is RFC 9000, v2 is RFC 9369"}
	}
	p.talk("handshake")
	s, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	s.recorder.awaitIDs(ctx, p.pace.answer) // they come after the handshake
	state, stats := s.conn.ConnectionState(), s.conn.ConnectionStats()
	r := p.report
	r.Version, r.ALPN = versionName(uint32(state.Version)), state.TLS.NegotiatedProtocol
	r.RTT = stats.MinRTT.Round(time.Microsecond)
	r.Parameters, r.ConnectionIDs, r.Retry = s.recorder.server()
	p.pace = p.pace.over(r.RTT)
	return nil
}

// over is the pace where a round trip takes so long: a slow start takes eight or so, and what answers late is repeated.
func (p pace) over(rtt time.Duration) pace {
	p.ramp, p.answer = max(p.ramp, 8*rtt), max(p.answer, 10*rtt)
	return p
}
