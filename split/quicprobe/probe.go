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

// Options say which server to probe, by which paths, and within which bounds.
type Options struct {
	Server string // HOST or HOST:PORT; the port is 443 by default
	// Via are the paths to change between; without any, only ports change. Beside are paths that others ride.
	Via, Beside []path.Spec
	Secret      func(name string) (path.Secret, error) // reads the secret of a named path; nil if no path has one
	Identity    string                                 // file of this device's key, for overlay nodes; empty: this user's own
	SNI         string                                 `flag:"sni" help:"the <NAME> that the server's certificate must have; by default HOST"`
	ALPN        []string                               `flag:"alpn" help:"the <PROTOCOLS> to offer; by default h3 and hq-interop" list:"commas"`
	Roots       *x509.CertPool                         // nil: those of this machine
	Insecure    bool                                   `flag:"insecure" help:"accept any certificate, for a test server of your own"` // the report says so
	Get         string                                 `flag:"get" help:"what to download to measure speed, such as </big-file>"`     // empty: "/"
	STUN        string                                 `flag:"stun" help:"a STUN server, <HOST:PORT>, to ask for each path's public address"`
	For         time.Duration                          `flag:"for" help:"how long the probe may take"`
	MaxBytes    int64                                  `flag:"max-bytes" help:"how many bytes the probe may send and receive"` // of UDP payload
	Talk        io.Writer                              // receives lines of progress; nil: none

	pace pace // zero means usual
}

// The usual bounds of a probe.
const (
	DefaultFor      = time.Minute
	DefaultMaxBytes = 128 << 20
)

// MaxPaths is how many addresses and ports a probe tries at most, unless more paths are given.
const MaxPaths = 6

// pace holds the waits and counts of a probe.
type pace struct {
	question  time.Duration // for an answer to version negotiation, each of two times
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

// usual is the pace towards strangers. A young session may fail to survive changes only at one moment of the handshake, so
// each early session changes at another one.
var usual = pace{question: time.Second, handshake: 5 * time.Second, answer: 3 * time.Second, dwell: 100 * time.Millisecond,
	ramp: 600 * time.Millisecond, window: time.Second, most: MaxPaths, early: 6, stun: 500 * time.Millisecond,
	periods: []time.Duration{500 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}}

// usualPeriod is the index in pace.periods where the search for the shortest period begins.
const usualPeriod = 2

type prober struct {
	Options
	name    string // of the server's certificate
	to      netip.AddrPort
	ways    []path.Path
	names   []string
	version uint32
	meter   *meter
	report  *Report
	step    string // what the probe does, as its last line of progress says
}

// Run probes the server. If a probe that began fails, it returns what it learned and the error. A bound of its own is no
// error, see Report.Stopped. Mistakes in the options are a [*path.Error] without a report.
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

// Default ports of HTTP/3 and STUN.
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

// open makes the paths, and takes the server's first address that all of them can send to.
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

// lookup returns the addresses of a server, IPv4 first.
func lookup(ctx context.Context, server string, usual uint16) ([]netip.AddrPort, error) {
	s, err := splitServer(server, usual)
	if err != nil {
		return nil, err
	}
	found, err := resolve.System(ctx, s)
	slices.SortStableFunc(found, func(a, b netip.AddrPort) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
	return found, err
}

// all runs all parts of the probe in turn.
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
	p.step = fmt.Sprintf(format, args...)
	if p.Talk != nil {
		fmt.Fprintln(p.Talk, p.step)
	}
}

func (p *prober) note(format string, args ...any) {
	p.report.Notes = append(p.report.Notes, fmt.Sprintf(format, args...))
}

// hello asks for versions and does the first handshake.
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
	s.recorder.awaitIDs(ctx, p.pace.answer) // they follow the handshake
	state, stats := s.conn.ConnectionState(), s.conn.ConnectionStats()
	r := p.report
	r.Version, r.ALPN = versionName(uint32(state.Version)), state.TLS.NegotiatedProtocol
	r.RTT = stats.MinRTT.Round(time.Microsecond)
	r.Parameters, r.ConnectionIDs, r.Retry = s.recorder.server()
	p.pace = p.pace.over(r.RTT)
	return nil
}

// over adapts the pace to a long round trip: a slow start takes about eight, and late answers are repeated.
func (p pace) over(rtt time.Duration) pace {
	p.ramp, p.answer = max(p.ramp, 8*rtt), max(p.answer, 10*rtt)
	return p
}
