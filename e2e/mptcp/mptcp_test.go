package mptcp

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab/peer"
)

const size = 12 << 20

// serveSums answers what it got with its SHA-256, and as many bytes again.
func serveSums(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			h := sha256.New()
			n, err := io.Copy(h, c)
			if err == nil {
				_, _ = c.Write(h.Sum(nil))
				_, _ = io.CopyN(c, rand.NewChaCha8([32]byte{}), n)
			}
		}()
	}
}

// exchange sends so many bytes and reads the answer.
func exchange(c *net.TCPConn, size int64) error {
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(c, h), rand.NewChaCha8([32]byte{1}), size); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	sum := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, sum); err != nil {
		return err
	}
	if string(sum) != string(h.Sum(nil)) {
		return fmt.Errorf("the server got something else")
	}
	if n, err := io.Copy(io.Discard, c); n != size || err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, size, err)
	}
	return nil
}

// A big transfer takes all subflows, in both directions, whichever construction leads them there; the server sees the
// nodes alone, and the client's network no packet to the server.
func TestBigTransferTakesAllSubflows(t *testing.T) {
	t.Parallel()
	straight := []string{"--via", "a=node:n1", "--via", "b=node:n2", "--via", "c=node:n3"}
	bySource := func(f family) (flags []string) {
		for i, from := range f.clients() {
			flags = append(flags, "--path", fmt.Sprintf("s%d=src:%v", i+1, from), "--via", fmt.Sprintf("p%d=node:n%[1]d@s%[1]d", i+1))
		}
		return flags
	}
	for _, c := range []struct {
		name, backend string
		family        family
		via           []string
	}{
		{"mptcp", "mptcp", ipv4, straight}, {"mptcp-nat", "mptcp-nat", ipv4, bySource(ipv4)},
		{"mptcp over IPv6", "mptcp", ipv6, straight}, {"mptcp-nat over IPv6", "mptcp-nat", ipv6, bySource(ipv6)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.family)
			dial := w.stream(append([]string{"--backend", c.backend}, c.via...)...)
			stops := map[string]func() traffic{}
			for n := 1; n <= nodes; n++ {
				name := fmt.Sprintf("n%d", n)
				stops[name] = w.watch("isp", name)
			}
			uplink, server := w.watch("client", "uplink"), w.watch("server", "core")
			if err := exchange(w.connect(), size); err != nil {
				t.Fatalf("%v\n%s", err, dial.Log())
			}
			for n := 1; n <= nodes; n++ {
				name := fmt.Sprintf("n%d", n)
				seen := stops[name]()
				node, up, down := c.family.node(n).String(), 0, 0
				for way, bytes := range seen.bytes {
					if way[1] == node {
						up += bytes
					} else {
						down += bytes
					}
				}
				t.Logf("%s: %.1f%% of what went up, %.1f%% of what came down", name, 100*float64(up)/size, 100*float64(down)/size)
				if up < size/20 || down < size/20 {
					t.Errorf("%s carried %d bytes up and %d down of %d", name, up, down, size)
				}
			}
			for way := range uplink().bytes {
				if way[0] == c.family.server.String() || way[1] == c.family.server.String() {
					t.Errorf("the client's network sees %s to %s", way[0], way[1])
				}
			}
			for way := range server().bytes {
				for _, client := range c.family.clients() {
					if way[0] == client.String() || way[1] == client.String() {
						t.Errorf("the server's network sees %s to %s", way[0], way[1])
					}
				}
			}
			polltest.Await(t, "no lease is left at the nodes", func() bool {
				return !strings.Contains(w.rules("n1")+w.rules("n2")+w.rules("n3"), "expires")
			})
		})
	}
}

// Where the program of a node is killed, its kernel goes on until the lease ends, and not longer. The stream ends then:
// both paths are required.
func TestKilledNodeLeavesNoRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipv4)
	dial := w.stream("--backend", "mptcp", "--patience", "4s", "--via", "a=node:n1", "--via", "b=node:n2")
	w.node["n2"].Kill()
	if rules := w.rules("n2"); !strings.Contains(rules, "192.0.2.1 . 4470") || !strings.Contains(rules, "expires") {
		t.Fatalf("the kernel holds no lease after the kill:\n%s", rules)
	}
	second := w.watch("isp", "n2")
	c := w.connect()
	failed := make(chan error, 1)
	go func() { // slowly, for as long as it lasts
		var err error
		for chunk := make([]byte, 256<<10); err == nil; time.Sleep(50 * time.Millisecond) {
			_, err = c.Write(chunk)
		}
		failed <- err
	}()
	polltest.Await(t, "the lease has ended", func() bool { return !strings.Contains(w.rules("n2"), "expires") })
	select {
	case <-failed:
	case <-time.After(time.Minute):
		t.Errorf("the stream goes on without a required path:\n%s", dial.Log())
	}
	if seen := second(); seen.total < 100_000 {
		t.Errorf("the kernel of the killed node carried %d bytes", seen.total)
	}
	// The program's connection is reset before the reason is written.
	if err := dial.AwaitLog(t.Context(), "1 of 2 paths are up, and 2 are required"); err != nil {
		t.Errorf("the client does not say why: %v", err)
	}
}

// The kernel fails open: what a dead path held goes by the other one. Heddle stops writing soon after, so that it is a
// bounded part, and ends the stream where the path stays away.
func TestDeadPathStopsTheStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipv4)
	const patience = 3 * time.Second
	dial := w.stream("--backend", "mptcp", "--patience", patience.String(), "--via", "a=node:n1", "--via", "b=node:n2")
	other, c := w.watch("isp", "n1"), w.connect()
	failed := make(chan error, 1)
	written := make(chan struct{})
	go func() {
		var err error
		for chunk, n := make([]byte, 64<<10), 0; err == nil; n++ {
			if _, err = c.Write(chunk); n == 64 {
				close(written)
			}
		}
		failed <- err
	}()
	<-written
	cut := time.Now()
	if err := w.Link("n2").Cut(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-failed:
	case <-time.After(time.Minute):
		t.Fatalf("the stream goes on without a required path:\n%s", dial.Log())
	}
	bytes, last := other().since(cut)
	t.Logf("after the second path's death the first carried %d more bytes, the last of them after %v", bytes, last.Sub(cut))
	// Full speed until the stream's end would be some 15 MB.
	if bytes > 8<<20 {
		t.Errorf("%d bytes went by one path after the other's death", bytes)
	}
	// The program's connection is reset before the reason is written.
	if err := dial.AwaitLog(t.Context(), "1 of 2 paths are up, and 2 are required"); err != nil {
		t.Errorf("the client does not say why: %v", err)
	}
}

// A node whose program was killed and started again has its leases still, and the client renews them there.
func TestRestartedNodeKeepsTheStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipv4)
	dial := w.stream("--backend", "mptcp", "--via", "a=node:n1", "--via", "b=node:n2")
	w.node["n1"].Kill()
	w.startNode("n1")
	left := func() (expires time.Duration) {
		found := regexp.MustCompile(`expires ([0-9hms]+)`).FindStringSubmatch(w.rules("n1"))
		if found == nil {
			t.Fatal("no lease at n1")
		}
		expires, err := time.ParseDuration(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return expires
	}
	polltest.Await(t, "the lease runs down", func() bool { return left() < 24*time.Second })
	polltest.Await(t, "the lease is renewed", func() bool { return left() > 25*time.Second })
	if err := exchange(w.connect(), 1<<20); err != nil {
		t.Errorf("%v\n%s\n%s", err, dial.Log(), w.state())
	}
}

// What a node's end leaves: nothing.
func TestNodeTidiesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipv6)
	forwarding := func(want string) {
		t.Helper()
		for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
			if value, err := w.Host("n1").Command(t.Context(), "cat", file).Output(); err != nil || string(value) != want+"\n" {
				t.Errorf("%s is %q, %v", file, value, err)
			}
		}
	}
	w.stream("--backend", "mptcp", "--via", "a=node:n1", "--via", "b=node:n2")
	if !strings.Contains(w.rules("n1"), "heddle_nat") {
		t.Fatal("the node has no table")
	}
	forwarding("1")
	if err := w.node["n1"].Interrupt(); err != nil {
		t.Errorf("the node's end: %v", err)
	}
	if rules := w.rules("n1"); rules != "" {
		t.Errorf("it leaves\n%s", rules)
	}
	forwarding("0")
}

// A session that cannot be dialled ahead, since the peer has no place for it, leaves no lease at the nodes, and the sessions that
// are there go on.
func TestWarmDialThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipv4)
	w.program()
	at := netip.AddrPortFrom(w.family.server, peer.StreamPort)
	w.StreamServer("server", at, "stream", "serve", "--backend", "mptcp", "--name", "sums", "--to", "127.0.0.1:9000", "--max-sessions", "2") // one for each key
	start := func(warm string) *peer.Process {
		return w.dial(at, "--warm", warm, "--via", "a=node:n1", "--via", "b=node:n2", "--backend", "mptcp")
	}
	leases := func() int { return strings.Count(w.rules("n1")+w.rules("n2"), "expires") }
	alone := start("0")
	ofOne := leases()
	alone.Stop()
	polltest.Await(t, "no lease is left at the nodes", func() bool { return leases() == 0 })
	dial := start("2")
	if err := dial.AwaitLog(t.Context(), "no session can be dialled ahead"); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	polltest.Await(t, "the nodes have the leases of one session alone", func() bool { return leases() == ofOne })
	if err := exchange(w.connect(), 1<<20); err != nil {
		t.Fatalf("over the session that is there: %v\n%s", err, dial.Log())
	}
	// It may meet another try to dial ahead, which takes the only place.
	polltest.Await(t, "a connection over a session that is dialled later", func() bool { return exchange(w.connect(), 1<<20) == nil })
}
