package bridge

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/disguise/handshake"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/internal/probe"
	"heddle/internal/tcptest"
)

// recorded returns what a client sends first, up to the hello's end and some more.
func recorded(t *testing.T, s *setup) []byte {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		up, err := net.Dial("tcp", s.at.String())
		if err != nil {
			return
		}
		defer up.Close()
		b := make([]byte, 16<<10)
		n, _ := c.Read(b)
		up.Write(b[:n])
		got <- b[:n]
		go io.Copy(up, c)
		io.Copy(c, up)
	}()
	o := s.options()
	o.Line.Address, o.Connections = netutil.AddrPort(l.Addr()), 1
	c := opened(t, o)
	c.Close()
	return <-got
}

// silence is how long the bridges of these tests listen to a stranger, who mostly says all within it.
const silence = 5 * time.Second

// Nobody but a client gets a byte, or a reset. The bridge ends all at the same age, whatever they sent, or when they end.
func TestStrangers(t *testing.T) {
	t.Parallel()
	polltest.Again(t, func(try int) error { return strangers(t, silence<<try) })
}

// strangers returns what a stranger learned from a bridge that listens so long to one.
func strangers(t *testing.T, silence time.Duration) error {
	t.Helper()
	s := start(t, func(o *Options) { o.Target, o.silence = to(tcptest.Serve(t, tcptest.Echo)), silence })
	hello := recorded(t, s)
	changed := bytes.Clone(hello)
	changed[40] ^= 1
	noise := func(n int) []byte { b := make([]byte, n); rand.Read(b); return b }
	var clientHello bytes.Buffer
	tls.Client(&recorder{&clientHello}, &tls.Config{ServerName: "web.example"}).Handshake()
	probes := map[string][]byte{"nothing": nil, "a replay": hello, "a changed replay": changed, "a cut replay": hello[:60], "half a key": hello[:20],
		"http": []byte("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n"), "ssh": []byte("SSH-2.0-OpenSSH_9.6\r\n"), "tls": clientHello.Bytes(),
		"socks": {5, 1, 0}, "zeros": make([]byte, 4096), "rdp": []byte("\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00")}
	for _, n := range []int{1, 31, 32, 47, 48, 49, 63, 64, 100, 500, 1460, 9000, 200_000} {
		probes["noise"+strings.Repeat("+", len(probes))] = noise(n)
	}
	learned := make(chan error, 2*len(probes))
	for name, probe := range probes {
		for _, ends := range []bool{false, true} {
			go func() { learned <- learn(name, s.at.String(), probe, ends) }()
		}
	}
	var err error
	for range cap(learned) {
		err = errors.Join(err, <-learned)
	}
	st := s.Status()
	if err == nil && (len(st.Refused) < 2 || st.Refused[handshake.NoHello] < 20 || st.Refused[handshake.Replayed] != 2 || st.LinksEver != 1) {
		err = fmt.Errorf("status: %+v", st)
	}
	c := opened(t, s.options())
	exchange(t, c, 1000)
	return err
}

// learn sends a probe, and returns what came but the end.
func learn(name, at string, probe []byte, ends bool) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	for part := range slices.Chunk(probe, 1+len(probe)/3) {
		if _, err := c.Write(part); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if ends {
		c.(*net.TCPConn).CloseWrite()
	}
	if answer, err := io.ReadAll(c); len(answer) > 0 || err != nil {
		return fmt.Errorf("%s: got %d bytes, and then %v", name, len(answer), err)
	}
	return nil
}

// recorder keeps what a TLS client says first.
type recorder struct{ *bytes.Buffer }

func (*recorder) Read([]byte) (int, error)         { return 0, errors.New("nobody is there") }
func (*recorder) Close() error                     { return nil }
func (*recorder) LocalAddr() net.Addr              { return nil }
func (*recorder) RemoteAddr() net.Addr             { return nil }
func (*recorder) SetDeadline(time.Time) error      { return nil }
func (*recorder) SetReadDeadline(time.Time) error  { return nil }
func (*recorder) SetWriteDeadline(time.Time) error { return nil }

// A bridge that cannot remember its clients' hellos answers nobody, and tells its owner why.
func TestDiskThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	replays, err := handshake.OpenReplays(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	replays.Close() // from now on it writes nothing
	server, err := handshake.NewServer(id, replays)
	if err != nil {
		t.Fatal(err)
	}
	var log safeBuffer
	s := start(t, func(o *Options) {
		o.Target, o.Key, o.Server, o.silence = to(tcptest.Serve(t, tcptest.Echo)), id.Public(), server, silence
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	c, err := net.Dial("tcp", s.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello, err := handshake.Start(id.Public(), handshake.Hello{Time: time.Now(), Cover: make([]byte, 5)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(hello.Bytes()); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); len(answer) > 0 || err != nil {
		t.Errorf("got %d bytes, and then %v", len(answer), err)
	}
	if s.Status().Refused[handshake.NotKept] != 1 || !strings.Contains(log.String(), "free space") {
		t.Errorf("%v\n%s", s.Status().Refused, log.String())
	}
}

// safeBuffer is a log that is read while others write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A crowd of strangers does not keep a client out.
func TestCrowd(t *testing.T) {
	s := start(t, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	const crowd, room = 300, 64 // of one address
	var closed atomic.Int32
	for range crowd {
		c, err := net.Dial("tcp", s.at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		go func() {
			io.Copy(io.Discard, c)
			closed.Add(1)
		}()
	}
	// Those that enter after the client proved itself have other places.
	polltest.Await(t, "all are in, and most are out again", func() bool { return closed.Load() == crowd-room })
	c := opened(t, s.options())
	exchange(t, c, 100_000)
	polltest.Until(t, func() error { // those of the link are counted a moment later
		if n := s.Status().Strangers; n > room {
			return fmt.Errorf("%d strangers of one address have places", n)
		}
		return nil
	})
}

// An attacker who changes the bytes of a client gets silence. The link goes on by other connections.
func TestChangedBytes(t *testing.T) {
	s := start(t, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	r := relayTo(t, s)
	r.mu.Lock()
	r.flip = 50_000
	r.mu.Unlock()
	c := opened(t, s.options())
	exchange(t, c, 1<<20)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flipped == 0 {
		t.Error("nothing was changed")
	}
}

// silentService reads what comes, answers nothing, and ends each connection at an age.
func silentService(t *testing.T, age time.Duration) netip.AddrPort {
	t.Helper()
	return tcptest.Serve(t, func(c *net.TCPConn) {
		defer time.AfterFunc(age, func() { c.CloseWrite() }).Stop()
		_, _ = io.Copy(io.Discard, c)
	})
}

// Probes of all kinds learn from a bridge with a user what they learn from a service that is silent.
func TestProbesSeeASilentService(t *testing.T) {
	t.Parallel()
	kinds := probe.Kinds
	polltest.Again(t, func(try int) error {
		var wrong []error
		kinds, wrong = probesOf(t, 2*time.Second<<try, kinds) // in which a busy machine sends every probe
		return errors.Join(wrong...)
	})
}

// probesOf returns of which kinds the probes of a bridge learn something else than those of a silent service, where both end
// connections at an age.
func probesOf(t *testing.T, age time.Duration, kinds []probe.Kind) (other []probe.Kind, wrong []error) {
	t.Helper()
	const each = 50
	s := start(t, func(o *Options) { o.Target, o.silence = to(tcptest.Serve(t, tcptest.Echo)), age })
	flight := recorded(t, s)
	user := opened(t, s.options())
	places := map[string]netip.AddrPort{"bridge": s.at, "silent": silentService(t, age)}
	for _, kind := range kinds {
		seen := map[string]*[2]probe.Seen{"bridge": {}, "silent": {}}
		var mu sync.Mutex
		var work sync.WaitGroup
		for i := range each {
			sent := kind.Bytes(flight)
			for name, at := range places {
				work.Go(func() {
					c, err := net.Dial("tcp", at.String())
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					r := probe.Send(c.(*net.TCPConn), sent, i%2 == 1, time.Minute)
					mu.Lock()
					defer mu.Unlock()
					seen[name][i%2].Count(r)
				})
			}
		}
		work.Wait()
		if *seen["bridge"] != *seen["silent"] || seen["bridge"][0].Probes == 0 {
			other = append(other, kind)
			wrong = append(wrong, fmt.Errorf("%s: the bridge %+v, a silent service %+v", kind.Name, *seen["bridge"], *seen["silent"]))
		}
	}
	exchange(t, user, 100_000)
	return other, wrong
}
