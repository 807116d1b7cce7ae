package quicprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"heddle/internal/errhint"
	"heddle/internal/polltest"
	"heddle/path"
)

func TestServerThatFollows(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := probed(t, s.options(3))
	if r.Version != "v1" || r.ALPN != "h3" || strings.Join(r.Offered, " ") != "v1 v2" {
		t.Errorf("version %s, ALPN %s, offered %v", r.Version, r.ALPN, r.Offered)
	}
	if p := r.Parameters; p.DisableActiveMigration || p.ActiveConnectionIDLimit != 4 || p.MaxIdleTimeout != 30*time.Second || p.MaxUDPPayloadSize < 1200 || p.PreferredAddress != nil {
		t.Errorf("parameters %+v", *p)
	}
	if r.ConnectionIDs != (ConnectionIDs{Given: 4, Length: 4}) {
		t.Errorf("connection ids %+v", r.ConnectionIDs)
	}
	if !r.NewPort.Survived || !r.NewAddress.Survived || r.NewPort.To != "a" || r.NewAddress.To != "b" {
		t.Errorf("new port %+v, new address %+v", *r.NewPort, *r.NewAddress)
	}
	// How many depends on how fast this machine is: quic-go keeps track of three that it did not yet go over to.
	if r.PathsAtOnce < 2 || !r.Rotations[r.PathsAtOnce-2].Held {
		t.Errorf("%d paths at once: %+v", r.PathsAtOnce, r.Rotations)
	}
	if r.Throughput == nil || r.Distrusts == "" || r.Throughput.Bits == 0 {
		t.Fatalf("throughput %+v, notes %q", r.Throughput, r.Notes)
	}
	changes := map[string]bool{}
	for _, c := range r.Throughput.Cases {
		changes[c.Change] = true
		if c.Switches == 0 || c.Paths != min(3, r.PathsAtOnce) {
			t.Errorf("case %+v", c)
		}
	}
	if !changes[changePort] || !changes[changeAddress] {
		t.Errorf("cases %+v", r.Throughput.Cases)
	}
	if r.Sent == 0 || r.Received == 0 || r.Stopped != "" || len(r.Paths) != 3 || r.Paths[2].Observer != "src:127.0.0.4" {
		t.Errorf("report %+v", r)
	}
}

func TestOneWayChangesPortsOnly(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	o := s.options(0)
	o.Get = "/small"
	r := probed(t, o)
	if !r.NewPort.Survived || r.NewAddress != nil || r.PathsAtOnce < 2 || r.Throughput != nil || r.Distrusts != "" {
		t.Errorf("report %+v", r)
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{"only one path was given", "GET /small gives 5 bytes only; name a large file with --get"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note says %q:\n%s", want, notes)
		}
	}
}

func TestUncheckedCertificateAndAbsentFile(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	o := s.options(0)
	o.Roots, o.SNI, o.Insecure, o.Get = nil, "", true, "/nothing"
	r := probed(t, o)
	if !r.Insecure || !strings.Contains(strings.Join(r.Notes, "\n"), "404 Not Found") {
		t.Errorf("insecure %v, notes %q", r.Insecure, r.Notes)
	}
}

// A server that is told which address a client has at its beginning, and listens to no other.
func TestServerThatFollowsPortsOnly(t *testing.T) {
	t.Parallel()
	s := start(t, func(m *mood, _ *quic.Config) { m.only = netip.MustParseAddr("127.0.0.2") })
	r := probed(t, s.options(2))
	if !r.NewPort.Survived || r.NewAddress.Survived || r.NewAddress.Why == "" {
		t.Errorf("new port %+v, new address %+v", *r.NewPort, *r.NewAddress)
	}
	if r.PathsAtOnce < 2 || r.Throughput == nil || r.Throughput.Cases[0].Change != changePort {
		t.Errorf("%d paths at once, throughput %+v", r.PathsAtOnce, r.Throughput)
	}
	if !strings.Contains(r.Advice.Words[0], "a new port only") {
		t.Errorf("advice %q", r.Advice.Words)
	}
}

func TestServerThatFollowsNobody(t *testing.T) {
	t.Parallel()
	s := start(t, func(m *mood, _ *quic.Config) { m.most = 1 })
	o := s.options(2)
	o.pace.answer = 2 * time.Second // which is all that there is to wait for
	r := probed(t, o)
	if r.NewPort.Survived || r.NewAddress.Survived || len(r.Rotations) > 0 || r.Throughput != nil || r.Advice.Split || len(r.Advice.Flags) > 0 {
		t.Errorf("report %+v", r)
	}
}

func TestServerWithFewPaths(t *testing.T) {
	t.Parallel()
	s := start(t, func(m *mood, _ *quic.Config) { m.most = 3 })
	o := s.options(2)
	o.Get = "/small"
	polltest.Again(t, func(int) error { // a busy machine may hear too little on one path
		r := probed(t, o)
		if len(r.Rotations) == 0 {
			return fmt.Errorf("no rotations, and new address %+v", r.NewAddress)
		}
		last := r.Rotations[len(r.Rotations)-1]
		if r.PathsAtOnce != 3 || last.Held || last.Paths != 4 || last.HeardOn != 3 {
			return fmt.Errorf("%d paths at once, %d of %d heard, held: %t", r.PathsAtOnce, last.HeardOn, last.Paths, last.Held)
		}
		return nil
	})
}

// dyingTalk ends the server once the probe says that it begins something.
type dyingTalk struct {
	*mood
	at string
}

func (d dyingTalk) Write(b []byte) (int, error) {
	if strings.Contains(string(b), d.at) {
		d.die()
	}
	return len(b), nil
}

// busyTalk lets the server answer nothing on some connections from then on.
type busyTalk struct {
	*mood
	connections int
}

func (b busyTalk) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "a new address") {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy = b.connections
	}
	return len(p), nil
}

// A server that answers a third attempt was busy and has not vanished.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	for connections, vanished := range map[int]string{attempts - 1: "", attempts: "a new address"} {
		s := start(t, nil)
		o := s.options(2)
		o.Get = "/small"
		o.Talk = busyTalk{s.mood, connections}
		o.pace.handshake = 5 * time.Second
		r, err := Run(t.Context(), o)
		if r == nil || (err == nil) != (vanished == "") || r.Vanished != vanished {
			t.Errorf("with %d lost connections: %v, %+v", connections, err, r)
		}
	}
}

func TestServerThatDies(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"a new port", "a new address", "over 3 addresses", "without changes", "every"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil)
			o := s.options(2)
			o.Talk = dyingTalk{s.mood, at}
			o.pace.handshake = 5 * time.Second
			r, err := Run(t.Context(), o)
			if r == nil || err == nil || r.Stopped == "" || (r.NewPort == nil) != (at == "a new port") || r.NewPort != nil && !r.NewPort.Survived {
				t.Fatalf("report %+v, error %v", r, err)
			}
			if !strings.Contains(err.Error(), "no answer within") {
				t.Errorf("error %v", err)
			}
			if at := r.Vanished; at == "" || r.Advice.Split || !strings.Contains(strings.Join(r.Advice.Words, "\n"), "vanished during this step: "+at) {
				t.Errorf("vanished at %q, advice %+v", at, r.Advice)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	o := s.options(2)
	o.MaxBytes = 100_000
	if r := probed(t, o); r.Stopped != errBytes.Error() || r.Vanished != "" || r.Sent+r.Received > 2*o.MaxBytes || r.Advice.Words == nil {
		t.Errorf("stopped: %q, sent %d, received %d", r.Stopped, r.Sent, r.Received)
	}
	o = s.options(2)
	o.For, o.MaxBytes, o.pace.window = 10*time.Second, 1<<40, time.Minute // enough for the handshake, and not for a download
	if r := probed(t, o); r.Stopped != errTime.Error() {
		t.Errorf("stopped: %q", r.Stopped)
	}
}

func TestServersThatCannotBeReached(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	var silent *server
	var tcp net.Listener // at the same port, by TCP only, which another program may have
	err := errors.ErrUnsupported
	for tries := 0; err != nil && tries < 20; tries++ {
		silent = start(t, func(m *mood, _ *quic.Config) { m.dead = true })
		tcp, err = net.Listen("tcp4", silent.addr.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	elsewhere, answers := answerElsewhere(t)
	for _, c := range []struct {
		name       string
		change     func(*Options)
		want, hint string
	}{
		{"port closed", func(o *Options) { o.Server = "127.0.0.1:1" }, "nothing listens on that port", "only TCP"},
		{"TCP only", func(o *Options) { o.Server = silent.addr.String() }, "but TCP port", "drops UDP"},
		{"answers from elsewhere", func(o *Options) { o.Server = elsewhere }, "no answer within", answers},
		{"wrong name", func(o *Options) { o.SNI = "other.example" }, "certificate is not to be trusted", "--sni"},
		{"unknown authority", func(o *Options) { o.Roots = silent.roots }, "certificate is not to be trusted", "--ca"},
		{"other protocol", func(o *Options) { o.ALPN = []string{"doq"} }, "the server speaks none of doq", "--alpn"},
		{"no such address here", func(o *Options) { o.Via = []path.Spec{{Name: "x", Kind: "src", Arg: "192.0.2.77"}} }, "no device here has", "doctor"},
		{"IPv6 path", func(o *Options) { o.Via = []path.Spec{{Name: "x", Kind: "src", Arg: "::1"}} }, "one is IPv4, the other IPv6", ""},
		{"odd server", func(o *Options) { o.Server = "a b" }, "not a host", "www.example.com"},
		{"odd file", func(o *Options) { o.Get = "x y" }, "no path on a server", "/big-file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := s.options(1)
			c.change(&o)
			r, err := Run(t.Context(), o)
			if r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("report %v, error %v, want %q", r, err, c.want)
			}
			if !strings.Contains(errhint.Of(err), c.hint) {
				t.Errorf("error %v: no hint says %q", err, c.hint)
			}
		})
	}
}

// answerElsewhere is a server that answers from another address than the one asked.
func answerElsewhere(t *testing.T) (asked, answers string) {
	t.Helper()
	var sockets []net.PacketConn
	for range 2 {
		s, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		sockets = append(sockets, s)
	}
	go func() {
		for {
			_, from, err := sockets[0].ReadFrom(make([]byte, 1500))
			if err != nil {
				return
			}
			sockets[1].WriteTo([]byte("answer"), from)
		}
	}()
	return sockets[0].LocalAddr().String(), sockets[1].LocalAddr().String()
}

func TestSTUNServerThatAnswersFromElsewhere(t *testing.T) {
	t.Parallel()
	asked, answers := answerElsewhere(t)
	s := start(t, nil)
	polltest.Again(t, func(try int) error {
		o := s.options(1)
		o.STUN, o.pace.stun = asked, 100*time.Millisecond<<try
		r := probed(t, o)
		if !slices.ContainsFunc(r.Notes, func(note string) bool { return strings.Contains(note, answers) }) {
			return fmt.Errorf("no note names %s: %q", answers, r.Notes)
		}
		return nil
	})
}

// narrow is a path that cannot carry QUIC.
type narrow struct{ path.System }

func (narrow) Describe() path.Info { return path.Info{Name: "narrow", MTU: 1227, Ready: true} }

func init() {
	path.Register(path.Kind{Scheme: "narrow", Carries: path.Datagrams, New: func(path.Spec, path.Options) (path.Path, error) { return narrow{path.NewSystem(0)}, nil }})
}

func TestNarrowPathIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	o := s.options(0)
	o.Via = []path.Spec{{Name: "n", Kind: "narrow"}}
	r, err := Run(t.Context(), o)
	if r != nil || err == nil || !strings.Contains(err.Error(), "packets of 1227 bytes, and QUIC needs 1228") {
		t.Errorf("report %v, error %v", r, err)
	}
}

// A server that forbids migration is asked twice for each kind of change, and no more where it does not follow.
func TestServerThatForbids(t *testing.T) {
	t.Parallel()
	s := start(t, func(m *mood, _ *quic.Config) { m.most = 1 })
	o := s.options(2)
	o.pace.answer = 2 * time.Second
	p, err := newProber(o)
	if err != nil {
		t.Fatal(err)
	}
	p.meter, p.version = &meter{max: o.MaxBytes, stop: func(error) {}}, version1
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.report.Parameters = &Parameters{DisableActiveMigration: true}
	for _, phase := range []func(context.Context) error{p.changes, p.rotations, p.throughput} {
		if err := phase(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s.connections() != 4 || p.report.NewPort.Tries != (Tries{Tried: 2}) || p.report.NewPort.Survived || p.report.NewAddress.Survived || len(p.report.Rotations) > 0 {
		t.Errorf("%d connections, report %+v", s.connections(), p.report)
	}
	a := advise(p.report)
	if words := strings.Join(append(a.Words, p.report.Notes...), "\n"); a.Split || strings.Count(words, "disable_active_migration") != 2 {
		t.Errorf("advice and notes:\n%s", words)
	}
}
