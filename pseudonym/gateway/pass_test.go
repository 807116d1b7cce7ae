//go:build unix

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netutil"
	"heddle/internal/polltest"
)

// listenSidecar listens at the unix socket of a sidecar, and returns the socket's file.
func listenSidecar(t *testing.T) (file string, l net.Listener) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "sidecar")
	l, err := netutil.ListenUnix(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, l
}

// newPassed is [newHidden] with the site at a unix socket.
func newPassed(t *testing.T, edit func(*tls.Config)) *hidden {
	t.Helper()
	file, l := listenSidecar(t)
	return newHiddenAt(t, l, "unix:"+file, edit)
}

// The tenant gets the connection itself, whatever the client sends first. Only where it may need the gateway's key again is it relayed.
func TestPass(t *testing.T) {
	noShare := func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP384} }
	for name, c := range map[string]struct {
		site, client func(*tls.Config)
		hidden       bool
		relayed      bool
	}{
		"in clear":                          {nil, nil, false, false},
		"in clear, after another hello":     {noShare, nil, false, false},
		"hidden":                            {nil, nil, true, false},
		"hidden, without post-quantum":      {nil, func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }, true, false},
		"hidden, of a group that few know":  {nil, func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.SecP256r1MLKEM768, tls.X25519} }, true, true},
		"hidden, of a group without shares": {noShare, func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256, tls.CurveP384} }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newPassed(t, c.site)
			if c.client != nil {
				c.client(h.client)
			}
			if !c.hidden {
				h.client.EncryptedClientHelloConfigList = nil
			}
			_, state, err := visit(t, h.at, h.client)
			if err != nil || state.ECHAccepted != c.hidden {
				t.Fatalf("%+v, %v", state, err)
			}
			want := Counts{Passed: 1}
			if c.relayed {
				want = Counts{Relayed: 1}
			}
			if c.hidden {
				want.Encrypted = 1
			}
			polltest.Await(t, "it is counted", func() bool {
				got := h.way.Counts()
				if c.relayed {
					got.BytesUp, got.BytesDown = 0, 0
				}
				return got == want
			})
		})
	}
}

// The tenant sees the client's address. The connection lives on without the gateway, which has no part in it.
func TestPassedConnectionOutlivesTheGateway(t *testing.T) {
	h := newPassed(t, nil)
	way := New(h.way.o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- way.Serve(ctx, l) }()
	h.client.NextProtos = []string{"who"}
	c, err := tls.Dial("tcp", l.Addr().String(), h.client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	if who, err := in.ReadString('\n'); err != nil || strings.TrimSpace(who) != c.LocalAddr().String() {
		t.Errorf("the tenant sees %q, %v", who, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("much"), 1<<18)
	go c.Write(text)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("after the gateway's end: %v", err)
	}
}

// A tenant that is not there, or takes nothing, costs the client its connection and the gateway nothing.
func TestPassToNobody(t *testing.T) {
	h := newPassed(t, nil)
	file := filepath.Join(t.TempDir(), "socket")
	h.routes.set(h.label, "unix:"+file)
	if _, _, err := visit(t, h.at, h.client); err == nil {
		t.Error("nobody answered")
	}
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, answer := range [][]byte{nil, {passTaken + 1}} {
		go func() {
			way, err := l.Accept()
			if err != nil {
				return
			}
			defer way.Close()
			c, r, err := takeDescriptor(way)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := readPassage(r); err != nil {
				t.Error(err)
			}
			way.Write(answer)
		}()
		if _, _, err := visit(t, h.at, h.client); err == nil {
			t.Error("nobody answered")
		}
		polltest.Await(t, "it is counted", func() bool { n := h.way.Counts(); return n.Failed == uint64(i)+2 && n.Live == 0 })
	}
}

// noted tells of each connection.
type noted struct {
	net.Listener
	came chan bool
}

func (n noted) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		n.came <- true
	}
	return c, err
}

// A connection that the sidecar's server never accepted is none that the gateway passed.
func TestPassToASidecarThatEnds(t *testing.T) {
	h := newPassed(t, nil)
	file, l := listenSidecar(t)
	came := make(chan bool, 1)
	in := passed(noted{l, came})
	h.routes.set(h.label, "unix:"+file)
	go func() {
		<-came
		in.Close()
	}()
	if _, _, err := visit(t, h.at, h.client); err == nil {
		t.Error("nobody answered")
	}
	polltest.Await(t, "it is counted", func() bool { n := h.way.Counts(); return n.Failed+n.Passed == 1 })
	if n := h.way.Counts(); n.Passed != 0 {
		t.Errorf("%+v", n)
	}
}

// kept keeps the connections that come.
type kept struct {
	net.Listener
	mu  sync.Mutex
	all []net.Conn
}

func (k *kept) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.all = append(k.all, c)
	}
	return c, err
}

// end ends them, and returns how many there were.
func (k *kept) end() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.all {
		c.Close()
	}
	return len(k.all)
}

// One way to a sidecar serves one client after the other. If the sidecar has ended it, the gateway makes another, and no client notices.
func TestWaysToSidecarsLast(t *testing.T) {
	file, l := listenSidecar(t)
	ways := &kept{Listener: l}
	h := newHiddenAt(t, ways, "unix:"+file, nil)
	for round := range 3 {
		for i := range 3 {
			if _, _, err := visit(t, h.at, h.client); err != nil {
				t.Fatal(err)
			}
			polltest.Await(t, "it is counted", func() bool { n := h.way.Counts(); return n.Passed == uint64(3*round+i+1) && n.Failed == 0 })
		}
		if n := ways.end(); n != round+1 {
			t.Errorf("round %d: %d ways", round, n)
		}
	}
}

// An agent finds out that the sidecar has ended a way before it uses that.
func TestAgentReaches(t *testing.T) {
	file, l := listenSidecar(t)
	defer l.Close()
	a := &Agent{Sidecar: file}
	for round := range 2 {
		way, used, err := a.reach()
		if err != nil || used {
			t.Fatalf("round %d: used %v, %v", round, used, err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		a.sidecar.keep(struct{}{}, way)
		if again, used, err := a.reach(); err != nil || again != way || !used {
			t.Errorf("round %d: the same way %v, used %v, %v", round, again == way, used, err)
		}
		a.sidecar.keep(struct{}{}, way)
		far.Close()
	}
	l.Close()
	if _, used, err := a.reach(); err == nil || used {
		t.Errorf("without a sidecar: used %v, %v", used, err)
	}
}

// A gateway gets a place although others keep all, if one of these waits.
func TestWaysMakeRoom(t *testing.T) {
	file, l := listenSidecar(t)
	in := passed(l)
	defer in.Close()
	go func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	client := connected(t)
	var first *net.UnixConn
	for i := range passAtOnce + 1 {
		way, err := net.Dial("unix", file)
		if err != nil {
			t.Fatal(err)
		}
		defer way.Close()
		way.SetDeadline(time.Now().Add(polltest.Patience))
		if err := giveTaken(way.(*net.UnixConn), client, passage{client: netutil.AddrPort(client.LocalAddr()), sent: []byte("hello")}); err != nil {
			t.Fatalf("way %d: %v", i, err)
		}
		if i == 0 {
			first = way.(*net.UnixConn)
		}
	}
	polltest.Await(t, "the oldest has ended", func() bool { return hasEnded(first) })
}

// A silent connection has what came with it at once. It takes nothing from the server before it may speak, and closes if it never may.
func TestPassSilent(t *testing.T) {
	for name, says := range map[string][]byte{"begins": {passBegin}, "says something else": {passBegin + 1}, "ends": nil} {
		t.Run(name, func(t *testing.T) {
			begins := bytes.Equal(says, []byte{passBegin})
			file, l := listenSidecar(t)
			in := passed(l)
			defer in.Close()
			near, far, err := socketPair()
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			way, err := net.Dial("unix", file)
			if err != nil {
				t.Fatal(err)
			}
			defer way.Close()
			until := time.Now().Add(polltest.Patience)
			near.SetDeadline(until)
			way.SetDeadline(until)
			client := netip.MustParseAddrPort("192.0.2.7:1234")
			raw, err := far.(*net.UnixConn).File()
			if err == nil {
				err = giveDescriptor(way.(*net.UnixConn), int(raw.Fd()), passage{client, []byte("hello"), true}.message())
			}
			if err := errors.Join(err, raw.Close(), far.Close()); err != nil {
				t.Fatal(err)
			}
			c, err := in.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			b := make([]byte, 5)
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" || c.RemoteAddr().String() != client.String() {
				t.Errorf("%q from %v, %v", b, c.RemoteAddr(), err)
			}
			wrote := make(chan error, 1)
			go func() {
				_, err := c.Write([]byte("hi"))
				wrote <- err
			}()
			near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, err := near.Read(b); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it speaks before it may: %d bytes, %v", n, err)
			}
			near.SetReadDeadline(until)
			if way.Write(says); says == nil {
				way.Close()
			}
			err = <-wrote
			if got, other := near.Read(b); begins && (err != nil || other != nil || string(b[:got]) != "hi") || !begins && (!errors.Is(err, net.ErrClosed) || !errors.Is(other, io.EOF)) {
				t.Errorf("the client gets %d bytes, %v; the server %v", got, other, err)
			}
		})
	}
}

// connected returns an end of a TCP connection. The other end waits to be accepted.
func connected(t *testing.T) *net.TCPConn {
	t.Helper()
	near, _ := pair(t)
	return near
}

// pair returns both ends of a connection.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{c, a} {
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(polltest.Patience))
	}
	return c.(*net.TCPConn), a.(*net.TCPConn)
}

// A sidecar closes messages that pass no connection, with all their descriptors.
func TestHostilePassages(t *testing.T) {
	file, l := listenSidecar(t)
	in := passed(l)
	defer in.Close()
	client := connected(t)
	raw, err := client.File()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	text, err := os.Create(filepath.Join(t.TempDir(), "text"))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	good := passage{client: netutil.AddrPort(client.LocalAddr()), sent: []byte("hello")}.message()
	large := bytes.Clone(good)
	large[len(large)-len("hello")-2] = 0xff
	before := openFiles(t)
	for name, c := range map[string]struct {
		message []byte
		fds     []int
	}{
		"no descriptor":   {good, nil},
		"two":             {good, []int{int(raw.Fd()), int(raw.Fd())}},
		"a file":          {good, []int{int(text.Fd())}},
		"another version": {append([]byte{7}, good[1:]...), []int{int(raw.Fd())}},
		"no address":      {[]byte{passVersion, 3, 'a', 'b', 'c', 0, 0, 0, 0}, []int{int(raw.Fd())}},
		"too large":       {large, []int{int(raw.Fd())}},
		"cut":             {good[:len(good)-1], []int{int(raw.Fd())}},
		"nothing":         {[]byte{passVersion}, nil},
	} {
		way, err := net.Dial("unix", file)
		if err != nil {
			t.Fatal(err)
		}
		way.SetDeadline(time.Now().Add(time.Minute))
		if _, _, err := way.(*net.UnixConn).WriteMsgUnix(c.message, unix.UnixRights(c.fds...), nil); err != nil {
			t.Fatal(err)
		}
		way.(*net.UnixConn).CloseWrite()
		if answer, err := io.ReadAll(way); err == nil && len(answer) > 0 {
			t.Errorf("%s is taken", name)
		}
		way.Close()
	}
	polltest.Await(t, "no descriptor is left", func() bool { return openFiles(t) <= before })
	way, err := net.Dial("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	if err := giveDescriptor(way.(*net.UnixConn), int(raw.Fd()), good); err != nil {
		t.Fatal(err)
	}
	c, err := in.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" || c.RemoteAddr().String() != client.LocalAddr().String() {
		t.Errorf("%q from %v, %v", b, c.RemoteAddr(), err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func FuzzPassage(f *testing.F) {
	f.Add(passage{sent: []byte("hello")}.message())
	f.Add(passage{sent: []byte("hello"), silent: true}.message())
	f.Add([]byte{passVersion, 255, 1})
	f.Fuzz(func(t *testing.T, message []byte) {
		p, err := readPassage(bytes.NewReader(message))
		if err != nil {
			return
		}
		again, err := readPassage(bytes.NewReader(p.message()))
		if err != nil || again.client != p.client || again.silent != p.silent || !bytes.Equal(again.sent, p.sent) {
			t.Fatalf("%+v is %+v, %v", p, again, err)
		}
		if _, err := readPassage(bytes.NewReader(p.message()[:len(p.message())-1])); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			t.Fatalf("a cut one: %v", err)
		}
	})
}
