package embed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
)

// call is a trace of RTP: 160 bytes each way each 20 ms, with jitter, and some of the marker bits set.
func call(packets int) Trace {
	t := Trace{Name: "call", Protocol: "RTP, G.711", Datagrams: true, Port: 5004}
	var marks []uint64
	for i := range packets {
		at := time.Duration(i)*20*time.Millisecond + time.Duration(i*i%7)*100*time.Microsecond
		if i == 0 {
			at = 0
		}
		t.Packets = append(t.Packets, Packet{At: at, Size: 172}, Packet{At: at + 3*time.Millisecond, Size: 172, Down: true})
		mark := uint64(0)
		if i%10 == 3 {
			mark = 0x80
		} else if i%10 == 4 {
			mark = 256 - 0x80
		}
		marks = append(marks, mark)
	}
	h := Header{{Kind: Literal, Bytes: 1, Value: []byte{0x80}}, {Kind: Steps, Bytes: 1, Value: []byte{0}, Steps: marks},
		{Kind: Counter, Bytes: 2, Step: 1}, {Kind: Counter, Bytes: 4, Step: 160}, {Kind: Session, Bytes: 4}}
	t.Up, t.Down = h, h
	return t
}

// shell is a trace over TCP with an opening and small packets.
func shell() Trace {
	t := Trace{Name: "shell", Up: Header{{Kind: Literal, Bytes: 9, Value: []byte("HELLO 1\r\n")}}, Down: Header{{Kind: Literal, Bytes: 4, Value: []byte("OK\r\n")}}}
	t.Packets = []Packet{{Size: 5}, {At: time.Millisecond, Size: 300}}
	for i := range 200 {
		at := time.Duration(i+1) * 100 * time.Millisecond
		t.Packets = append(t.Packets, Packet{At: at, Size: 36}, Packet{At: at + 10*time.Millisecond, Size: 44 + i, Down: true})
	}
	return t
}

func databaseOf(t testing.TB, traces ...Trace) *Database {
	t.Helper()
	d := &Database{Traces: traces}
	raw, err := d.pack()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// datagrams hides CloseWrite, which a socket of datagrams does not have.
type datagrams struct{ net.Conn }

// session is both ends of one connection.
type session struct {
	client, server         covertest.Feed
	clientConn, serverConn *covertest.Conn
	parameters             []byte
	ended                  chan error
}

// start plays a trace. The bridge begins as if the hello had just arrived.
func start(ctx context.Context, t *testing.T, trace Trace) *session {
	t.Helper()
	d := databaseOf(t, trace)
	f, err := FactoryOf(d, cover.Options{Datagrams: trace.Datagrams})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{ended: make(chan error, 2)}
	s.client.Datagrams, s.server.Datagrams = trace.Datagrams, trace.Datagrams
	s.clientConn, s.serverConn = covertest.Pipe()
	client, parameters, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	s.parameters = parameters
	server, err := f.Server(parameters)
	if err != nil {
		t.Fatal(err)
	}
	var atClient, atServer net.Conn = s.clientConn, s.serverConn
	if trace.Datagrams {
		atClient, atServer = datagrams{atClient}, datagrams{atServer}
	}
	go func() { s.ended <- client.Carry(ctx, atClient, &s.client) }()
	go func() {
		if !trace.Datagrams { // the bridge reads what leads the hello
			lead := make([]byte, f.Leads()[0])
			for at := 0; at < len(lead); {
				n, err := s.serverConn.Read(lead[at:])
				if err != nil {
					s.ended <- err
					return
				}
				at += n
			}
			if !bytes.Equal(lead, trace.Up[0].Value) {
				t.Errorf("%q leads the hello", lead)
			}
		}
		s.ended <- server.Carry(ctx, atServer, &s.server)
	}()
	return s
}

// same compares what was written with one side of a trace.
func same(t *testing.T, trace *Trace, down bool, from int, began time.Time, writes []covertest.Write) {
	t.Helper()
	i := 0
	for _, p := range trace.Packets[from:] {
		if p.Down != down {
			continue
		}
		if i == len(writes) {
			t.Fatalf("%s: only %d packets", sideName(down), i)
		}
		w := writes[i]
		if at := w.At.Sub(began); len(w.Data) != p.Size || at != p.At-trace.Packets[from].At {
			t.Fatalf("%s: packet %d has %d bytes after %v, recorded %d after %v", sideName(down), i, len(w.Data), at, p.Size, p.At)
		}
		i++
	}
	if i != len(writes) {
		t.Fatalf("%s: %d packets, recorded %d", sideName(down), len(writes), i)
	}
}

func TestReplaysSizesDirectionsAndTimes(t *testing.T) {
	for _, trace := range []Trace{call(500), shell()} {
		for _, busy := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := start(t.Context(), t, trace)
				up, down := noise(3000), noise(2500)
				if busy {
					s.client.Send(up)
					time.Sleep(1500 * time.Millisecond)
					s.server.Send(down)
				}
				for range 2 {
					if err := <-s.ended; err != nil {
						t.Error(err)
					}
				}
				from := int(binary.BigEndian.Uint32(s.parameters[11:]))
				same(t, &trace, false, from, began, s.clientConn.Writes())
				same(t, &trace, true, from, began, s.serverConn.Writes())
				if busy && (!bytes.Equal(s.server.Received(), up) || !bytes.Equal(s.client.Received(), down)) {
					t.Errorf("%d and %d bytes arrived", len(s.server.Received()), len(s.client.Received()))
				}
				if n := s.client.Unusable() + s.server.Unusable(); n != 0 {
					t.Errorf("%d datagrams hold no block", n)
				}
			})
		}
	}
}

// A stream carries what Capacity says, and no block is cut off at its end.
func TestCapacity(t *testing.T) {
	for _, trace := range []Trace{call(200), shell()} {
		trace.Whole = true
		synctest.Test(t, func(t *testing.T) {
			s := start(t.Context(), t, trace)
			all := noise(100_000)
			s.client.Send(all)
			s.server.Send(all)
			for range 2 {
				if err := <-s.ended; err != nil {
					t.Error(err)
				}
			}
			for _, side := range []struct{ from, to *covertest.Feed }{{&s.client, &s.server}, {&s.server, &s.client}} {
				capacity := int(trace.Capacity(side.from == &s.server))
				if n := len(side.to.Received()); n+side.from.Unsent() != len(all) || n < capacity*95/100 || n > capacity*3/2 {
					t.Errorf("%s: %d bytes of %d arrived, %d were never sent, capacity %d", trace.Name, n, len(all), side.from.Unsent(), capacity)
				}
			}
		})
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

// A write that takes long makes the packets behind it late, and none after these.
func TestLateDataDoesNotBendTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace := call(100)
		trace.Whole = true
		began := time.Now()
		s := start(t.Context(), t, trace)
		time.Sleep(time.Second + time.Millisecond)
		s.clientConn.Stall(150 * time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		s.clientConn.Stall(0)
		<-s.ended
		<-s.ended
		late := 0
		writes := s.clientConn.Writes()
		for i, w := range writes {
			due := trace.Packets[2*i].At
			if at := w.At.Sub(began); at != due {
				late++
				if at < due || at > 1200*time.Millisecond {
					t.Errorf("packet %d: %v, recorded %v", i, at, due)
				}
			}
		}
		if len(writes) != 100 || late < 3 || late > 9 {
			t.Errorf("%d of %d packets were late", late, len(writes))
		}
	})
}

func TestHeadersOfRTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		trace := call(60)
		trace.Loop = true
		s := start(ctx, t, trace)
		time.Sleep(time.Minute)
		cancel()
		for range 2 {
			if err := <-s.ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		first := int(binary.BigEndian.Uint32(s.parameters[11:])) / 2
		var before []byte
		writes := s.clientConn.Writes()
		if len(writes) < 2000 {
			t.Fatalf("%d packets: it does not loop", len(writes))
		}
		for i, w := range writes {
			b := w.Data
			marked := byte(0)
			if (first+i)%60%10 == 3 {
				marked = 0x80
			}
			if b[0] != 0x80 || b[1] != marked {
				t.Fatalf("packet %d begins with %x, marker %x", i, b[:2], marked)
			}
			if before != nil && (binary.BigEndian.Uint16(b[2:]) != binary.BigEndian.Uint16(before[2:])+1 ||
				binary.BigEndian.Uint32(b[4:]) != binary.BigEndian.Uint32(before[4:])+160 || !bytes.Equal(b[8:12], before[8:12])) {
				t.Fatalf("packet %d: %x after %x", i, b[:12], before[:12])
			}
			before = b
		}
		if bytes.Equal(before[8:12], s.serverConn.Writes()[0].Data[8:12]) {
			t.Error("both sides have the same SSRC")
		}
	})
}

func TestPeerOfDatagramsThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace := call(10)
		trace.Loop, trace.Packets[len(trace.Packets)-1].At = true, time.Minute
		a, b := covertest.Pipe()
		f, err := FactoryOf(databaseOf(t, trace), cover.Options{Datagrams: true})
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := f.Client()
		if err != nil {
			t.Fatal(err)
		}
		go func() { // it takes everything and says nothing
			for buffer := make([]byte, 2000); ; {
				if _, err := b.Read(buffer); err != nil {
					return
				}
			}
		}()
		others, end := context.WithCancel(t.Context())
		defer end()
		go func() { // who writes the peer's address keeps nothing alive
			for range 300 {
				if _, err := b.Write(make([]byte, 300)); err != nil || netutil.Sleep(others, time.Second) != nil {
					return
				}
			}
		}()
		began := time.Now()
		if err := c.Carry(t.Context(), datagrams{a}, &covertest.Feed{Datagrams: true}); !errors.Is(err, errSilent) {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		a.Close()
	})
}

func TestParametersOfStrangers(t *testing.T) {
	trace := call(100)
	d := databaseOf(t, trace, shell())
	f, err := FactoryOf(d, cover.Options{Datagrams: true})
	if err != nil {
		t.Fatal(err)
	}
	of := func(number byte, fingerprint [8]byte, at uint16, start uint32) []byte {
		b := append([]byte{number}, fingerprint[:]...)
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, at), start)
	}
	for name, bad := range map[string][]byte{
		"nothing":          nil,
		"another cover":    of(1, d.Fingerprint, 0, 0),
		"another database": of(Number, [8]byte{1}, 0, 0),
		"no such trace":    of(Number, d.Fingerprint, 2, 0),
		"a trace over TCP": of(Number, d.Fingerprint, 1, 0),
		"no such packet":   of(Number, d.Fingerprint, 0, 200),
		"a huge packet":    of(Number, d.Fingerprint, 0, 1<<32-1),
		"the server's":     of(Number, d.Fingerprint, 0, 1),
		"more":             append(of(Number, d.Fingerprint, 0, 0), 0),
	} {
		if _, err := f.Server(bad); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := f.Server(of(Number, d.Fingerprint, 0, 2)); err != nil {
		t.Error(err)
	}
	if got := f.Leads(); len(got) != 1 || got[0] != 12 {
		t.Errorf("leads %v", got)
	}
}

func TestChoosesATrace(t *testing.T) {
	d := databaseOf(t, call(100), shell())
	for _, c := range []struct {
		trace     string
		datagrams bool
		want      int
	}{{"", true, 0}, {"", false, 1}, {"shell", false, 1}, {"1", false, 1}, {"call", false, -1}, {"2", true, -1}, {"shell", true, -1}} {
		f, err := FactoryOf(d, cover.Options{Datagrams: c.datagrams, Args: map[string]string{"trace": c.trace}})
		if (err == nil) != (c.want >= 0) {
			t.Errorf("%+v: %v", c, err)
		}
		if hint := "transport=tcp"; c.trace == "shell" && c.datagrams && !strings.Contains(errhint.Of(err), hint) {
			t.Errorf("%+v: the hint is %q", c, errhint.Of(err))
		}
		if err != nil {
			continue
		}
		if _, p, err := f.Client(); err != nil || int(binary.BigEndian.Uint16(p[9:])) != c.want {
			t.Errorf("%+v: %x, %v", c, p, err)
		}
	}
}
