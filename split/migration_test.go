package split

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"

	"heddle/path"
	"heddle/schedule"
)

// line carries packets one way in virtual time: 18 Mbit/s, a queue of 100 ms.
type line struct {
	far     time.Duration
	mu      sync.Mutex
	free    time.Time
	flying  chan flying
	deliver func(simnet.Packet)
}

type flying struct {
	simnet.Packet
	due time.Time
}

func newLine(work *sync.WaitGroup, far time.Duration, deliver func(simnet.Packet)) *line {
	l := &line{far: far, flying: make(chan flying, 4096), deliver: deliver}
	work.Go(func() {
		for p := range l.flying {
			time.Sleep(time.Until(p.due))
			l.deliver(p.Packet)
		}
	})
	return l
}

func (l *line) send(p simnet.Packet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	if l.free.Sub(now) > 100*time.Millisecond {
		return
	}
	l.free = l.free.Add(time.Duration(len(p.Data)+28) * 8 * time.Second / 18_000_000)
	l.flying <- flying{p, l.free.Add(l.far)}
}

// crossing joins a client of quic-go, a session over three paths, and a server of quic-go whose one line all paths share. It is
// the router of both ends.
type crossing struct {
	up, down       *line
	flows          [3]*fakeFlow
	client, server *simnet.SimConn
	session        *Session

	visits int // of the server to paths: at least five large packets in a row
	last   int
	run    int
}

func (c *crossing) AddNode(net.Addr, simnet.PacketReceiver) {}

func (c *crossing) SendPacket(p simnet.Packet) error {
	if p.From.(*net.UDPAddr).AddrPort() == fakeServer {
		c.down.send(p)
		return nil
	}
	return c.session.Send([][]byte{p.Data})
}

// arrive delivers what the server sent to the client's address on path i, 10.101.0.i.
func (c *crossing) arrive(p simnet.Packet) {
	i := int(p.To.(*net.UDPAddr).IP.To4()[3])
	if i != c.last {
		c.last, c.run = i, 0
	}
	if len(p.Data) > 1000 {
		if c.run++; c.run == 5 {
			c.visits++
		}
	}
	c.flows[i].arrived <- []path.Inbound{{Data: p.Data, Size: len(p.Data), From: fakeServer}}
}

// crossingPath is path i.
type crossingPath struct {
	fakePath
	c *crossing
	i int
}

func (p *crossingPath) Open(context.Context, netip.AddrPort) (path.Flow, error) {
	p.c.flows[p.i] = &fakeFlow{path: &p.fakePath, arrived: make(chan []path.Inbound, 4096), done: make(chan struct{})}
	return &crossingFlow{p.c.flows[p.i], p}, nil
}

type crossingFlow struct {
	*fakeFlow
	by *crossingPath
}

func (f *crossingFlow) Send(datagrams [][]byte) (int, error) {
	from := &net.UDPAddr{IP: net.IPv4(10, 101, 0, byte(f.by.i)), Port: 4433}
	for _, d := range datagrams {
		f.by.c.up.send(simnet.Packet{From: from, To: f.by.c.server.LocalAddr(), Data: bytes.Clone(d)})
	}
	return len(datagrams), nil
}

// migrated downloads with these options from a server so far away. It returns the speed without the first second, how often the
// session switched, and how often the server began to send by another path.
func migrated(t *testing.T, far, length time.Duration, change func(*Options)) (megabits float64, switches, visits int) {
	synctest.Test(t, func(t *testing.T) {
		var lines, work sync.WaitGroup
		c := &crossing{last: -1}
		c.server = simnet.NewSimConn(net.UDPAddrFromAddrPort(fakeServer), c)
		c.client = simnet.NewSimConn(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4433}, c)
		c.up, c.down = newLine(&lines, far, c.server.RecvPacket), newLine(&lines, far, c.arrive)
		o := Options{Session: "test", To: fakeServer.String(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)), paths: map[string]path.Path{},
			Schedule: schedule.Config{Name: "round-robin", Every: schedule.Every{Period: 150 * time.Millisecond}}}
		for i, name := range []string{"a", "b", "c"} {
			o.Via = append(o.Via, path.Spec{Name: name, Kind: "fake", Arg: name})
			o.paths[name] = &crossingPath{fakePath{name: name}, c, i}
		}
		change(&o)
		var err error
		if c.session, err = NewSession(o); err != nil {
			t.Fatal(err)
		}
		if err := c.session.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		order := newReorderer(o.Reorder, 3, func(datagrams [][]byte) {
			for _, d := range datagrams {
				c.client.RecvPacket(simnet.Packet{From: c.server.LocalAddr(), To: c.client.LocalAddr(), Data: bytes.Clone(d)})
			}
		})
		for i := range 3 {
			work.Go(func() {
				into := make([]path.Inbound, 1)
				for {
					n, err := c.session.Receive(i, into)
					if err != nil {
						return
					}
					if o.Reorder > 0 {
						order.arrived(i, into[:n])
					} else {
						order.give([][]byte{into[0].Data})
					}
				}
			})
		}
		megabits = c.download(t, length)
		switches = int(c.session.switches)
		c.session.Close()
		work.Wait()
		close(c.up.flying)
		close(c.down.flying)
		lines.Wait()
		visits = c.visits
	})
	return megabits, switches, visits
}

// download serves zeros without end by quic-go, and reads them for so long. It returns what came after the first second, in Mbit/s.
func (c *crossing) download(t *testing.T, length time.Duration) float64 {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	at, from := &quic.Transport{Conn: c.server}, &quic.Transport{Conn: c.client}
	listener, err := at.Listen(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, NextProtos: []string{"test"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := listener.Accept(t.Context())
		if err != nil {
			return
		}
		stream, err := conn.OpenUniStreamSync(t.Context())
		for zeros := make([]byte, 32<<10); err == nil; {
			_, err = stream.Write(zeros)
		}
	})
	conn, err := from.Dial(t.Context(), c.server.LocalAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"test"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := conn.AcceptUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began, count := time.Now(), 0
	for buffer := make([]byte, 64<<10); time.Since(began) < length; {
		n, err := stream.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > time.Second {
			count += n
		}
	}
	err = errors.Join(conn.CloseWithError(0, ""), listener.Close(), from.Close(), at.Close(), c.client.Close(), c.server.Close())
	serving.Wait()
	if err != nil {
		t.Error(err)
	}
	return float64(count) * 8 / (length - time.Second).Seconds() / 1e6
}

const closeBy, brief = 10 * time.Millisecond, 3 * time.Second

// A server of quic-go begins its congestion control anew at each address, and sends again what was under way.
func TestDrainSavesWhatAServerSendsAgain(t *testing.T) {
	plain, switches, visits := migrated(t, closeBy, brief, func(o *Options) {})
	if visits < switches {
		t.Errorf("the server followed %d of %d switches", visits, switches)
	}
	drained, switches, visits := migrated(t, closeBy, brief, func(o *Options) { o.Drain = 250 * time.Millisecond })
	if visits < switches-1 {
		t.Errorf("drained, the server followed %d of %d switches", visits, switches)
	}
	if drained < 1.15*plain {
		t.Errorf("drained at %.1f Mbit/s, and without at %.1f", drained, plain)
	}
}

// What restores the order must not keep the server from following.
func TestServerFollowsUnderReorder(t *testing.T) {
	_, switches, visits := migrated(t, closeBy, brief, func(o *Options) { o.Reorder = 100 * time.Millisecond })
	if visits < switches-1 {
		t.Errorf("the server followed %d of %d switches", visits, switches)
	}
}

// The units of "auto" are long enough for the server, also if it is far.
func TestAutoKeepsTheSpeed(t *testing.T) {
	seed := uint64(1)
	for far, least := range map[time.Duration]float64{closeBy: 0.88, 4 * closeBy: 0.75} {
		speed := func(every schedule.Every) float64 {
			megabits, _, _ := migrated(t, far, 6*time.Second, func(o *Options) {
				o.Schedule = schedule.Config{Name: "uniform", Every: every, Seed: &seed}
			})
			return megabits
		}
		if one, auto := speed(schedule.Every{}), speed(schedule.Every{Period: schedule.AutoPeriod, Auto: true}); auto < least*one {
			t.Errorf("%v away: %.1f Mbit/s, and without switches %.1f", far, auto, one)
		} else {
			t.Logf("%v away: %.2f of the speed without switches", far, auto/one)
		}
	}
}
