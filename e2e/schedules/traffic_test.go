package schedules

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"heddle/lab"
)

const (
	datagramBytes = 200
	inFlight      = 64 // datagrams that have not come back: few enough for every socket's buffer on the way
	throughProxy  = 24 // the same where QUIC carries them: quic-go keeps 32 of a stream
	opening       = 16 // the same until so many came back: a relay keeps few while it opens a session
)

// socket opens a UDP socket in a host.
func (w *world) socket(host string, at netip.AddrPort) (*net.UDPConn, error) {
	var c *net.UDPConn
	err := w.Host(host).Do(func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { c.Close() })
	// The segments of a run weigh much more than their bytes, and a busy machine reads late.
	return c, control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) })
}

// echo is a server that sends each datagram back to where it came from.
func (w *world) echo(at netip.AddrPort) {
	w.t.Helper()
	c, err := w.socket("server", at)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
}

// traffic is a session of numbered datagrams.
type traffic struct {
	session uint32
	to      netip.AddrPort
	n       int           // datagrams, each of which must come back
	run     int           // of so many at once (UDP_SEGMENT); 0 for one at a time
	pace    time.Duration // between two writes, 0 for as fast as they come back
	window  int           // how many may be on the way; 0 for inFlight
	// patience is how long nothing may come back; 0 for 20 s.
	patience time.Duration
}

var serverAddr = lab.ServerAddr

// late is an answer after which Heddle may doubt a path, and then test it out of turn: doubtAfter of package path is longer.
const late = 300 * time.Millisecond

// tries is how often a run is made at most of which a busy machine made answers late.
const tries = 5

// send sends from a new socket in the client, and wants each datagram back.
func (w *world) send(s traffic) error {
	_, err := w.timed(s)
	return err
}

// timed is send, and returns how long the slowest answer took.
func (w *world) timed(s traffic) (slowest time.Duration, err error) {
	times := timing{began: time.Now(), sent: make([]atomic.Int64, s.n)}
	err = w.exchange(s, &times)
	return time.Duration(times.slowest.Load()), err
}

// timing has times since a run began.
type timing struct {
	began   time.Time
	sent    []atomic.Int64
	slowest atomic.Int64
}

func (t *timing) since() int64 { return int64(time.Since(t.began)) }

func (w *world) exchange(s traffic, times *timing) error {
	c, err := w.socket("client", netip.MustParseAddrPort("0.0.0.0:0"))
	if err != nil {
		return err
	}
	defer c.Close()
	if s.run > 0 {
		if err := segment(c); err != nil {
			return err
		}
	}
	back, failed := make(chan int, s.n), make(chan error, 1)
	go func() { failed <- hear(c, s, times, back) }()
	for sent, returned := 0, 0; returned < s.n; {
		for len(back) > 0 {
			<-back
			returned++
		}
		count, limit := min(max(s.run, 1), s.n-sent), cmp.Or(s.window, inFlight)
		if returned < opening {
			count, limit = min(count, opening), opening
		}
		if count > 0 && sent-returned+count <= limit {
			for i := range count {
				times.sent[sent+i].Store(times.since())
			}
			if _, err := c.WriteToUDPAddrPort(s.datagrams(sent, count), s.to); err != nil {
				return err
			}
			sent += count
			if s.pace > 0 {
				time.Sleep(s.pace)
			}
			continue
		}
		if returned == s.n {
			break
		}
		select {
		case <-back:
			returned++
		case err := <-failed:
			return fmt.Errorf("%d sent, %d back: %w", sent, returned, err)
		}
	}
	return nil
}

// hear reads what comes back, each datagram once.
func hear(c *net.UDPConn, s traffic, times *timing, back chan<- int) error {
	buffer, had := make([]byte, 2000), make([]bool, s.n)
	for {
		c.SetReadDeadline(time.Now().Add(cmp.Or(s.patience, 20*time.Second)))
		n, _, err := c.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return fmt.Errorf("number %d did not come back: %w", slices.Index(had, false), err)
		}
		session, number, ok := parse(buffer[:n])
		if !ok || session != s.session || number >= s.n || had[number] {
			return fmt.Errorf("session %d heard %d bytes that are no answer of its own: session %d, number %d", s.session, n, session, number)
		}
		had[number] = true
		times.slowest.Store(max(times.slowest.Load(), times.since()-times.sent[number].Load()))
		back <- number
	}
}

// The first byte of a datagram is 0, so that it looks like no QUIC packet.
func (s traffic) datagrams(from, count int) []byte {
	data := make([]byte, count*datagramBytes)
	for i := range count {
		d := data[i*datagramBytes:]
		binary.BigEndian.PutUint32(d[1:], s.session)
		binary.BigEndian.PutUint32(d[5:], uint32(from+i))
	}
	return data
}

func parse(datagram []byte) (session uint32, number int, ok bool) {
	if len(datagram) != datagramBytes || datagram[0] != 0 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(datagram[1:]), int(binary.BigEndian.Uint32(datagram[5:])), true
}

// segment makes a socket hand each write to the kernel as a run of datagrams.
func segment(c *net.UDPConn) error {
	return control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, datagramBytes) })
}

func control(c *net.UDPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if refused := raw.Control(func(fd uintptr) { err = f(int(fd)) }); refused != nil {
		return refused
	}
	return err
}
