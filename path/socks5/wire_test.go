package socks5

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/path"
)

func FuzzHeader(f *testing.F) {
	f.Add(append(headerTo(netip.MustParseAddrPort("192.0.2.1:443")), "payload"...))
	f.Add(append(headerTo(netip.MustParseAddrPort("[2001:db8::1]:443")), "payload"...))
	f.Add([]byte("\x00\x00\x00\x03\x09192.0.2.7\x04\x38"))
	f.Add([]byte("\x00\x00\x01\x01\xc0\x00\x02\x07\x04\x38"))
	f.Fuzz(func(t *testing.T, data []byte) {
		from, length, err := parseHeader(data)
		if err != nil {
			return
		}
		if length < 7 || length > len(data) {
			t.Fatalf("a header of %d bytes in %d", length, len(data))
		}
		if again, n, err := parseHeader(headerTo(from)); err != nil || again != from || n != len(headerTo(from)) {
			t.Errorf("%v becomes %v, %v", from, again, err)
		}
	})
}

// FuzzUnwrap takes joined datagrams apart: each payload comes out once, in order, or is dropped.
func FuzzUnwrap(f *testing.F) {
	one := append(headerTo(netip.MustParseAddrPort("192.0.2.1:443")), "payload"...)
	f.Add(bytes.Repeat(one, 3), len(one))
	f.Add(append(bytes.Repeat(one, 2), one[:12]...), len(one))
	f.Add(append(bytes.Repeat(one, 2), one[:10]...), len(one))
	f.Add(append(one, headerTo(netip.MustParseAddrPort("192.0.2.2:443"))...), len(one))
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		if size < 1 || len(data) > 1<<16 {
			return
		}
		type datagram struct {
			from    netip.AddrPort
			payload string
		}
		var want, got []datagram
		for rest := data; len(rest) > 0; {
			d := rest[:min(size, len(rest))]
			rest = rest[len(d):]
			if from, n, err := parseHeader(d); err == nil {
				want = append(want, datagram{from, string(d[n:])})
			}
		}
		in := path.Inbound{Data: bytes.Clone(data), Size: size}
		for len(in.Data) > 0 {
			before := len(in.Data)
			out, ok := unwrap(&in)
			if len(in.Data) >= before {
				t.Fatal("nothing was taken")
			}
			if !ok {
				continue
			}
			if len(out.Data) == 0 {
				got = append(got, datagram{from: out.From})
			}
			for rest := out.Data; len(rest) > 0; {
				d := rest[:min(out.Size, len(rest))]
				rest = rest[len(d):]
				got = append(got, datagram{out.From, string(d)})
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d datagrams of %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("datagram %d is %v, not %v", i, got[i], want[i])
			}
		}
	})
}

// sink is a flow that keeps what it was last given to send.
type sink struct {
	path.Flow
	lengths []int
	fails   error
	takes   int
}

func (s *sink) Send(datagrams [][]byte) (int, error) {
	for _, d := range datagrams {
		s.lengths = append(s.lengths, len(d))
	}
	return min(len(datagrams), s.takes), s.fails
}

func (s *sink) Close() error { return nil }

func newSinkFlow(t *testing.T, s *sink) *flow {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	return newFlow("path p", s, near, netip.MustParseAddrPort("192.0.2.9:1080"), netip.MustParseAddrPort("[2001:db8::1]:443"))
}

func TestSendMakesNoGarbage(t *testing.T) {
	s := &sink{takes: 1 << 16, lengths: make([]int, 0, 1<<16)}
	f := newSinkFlow(t, s)
	burst := make([][]byte, 64)
	for i := range burst {
		burst[i] = make([]byte, 1200)
	}
	f.Send(burst)
	if n := testing.AllocsPerRun(100, func() { s.lengths = s.lengths[:0]; f.Send(burst) }); n > 0 {
		t.Errorf("%v allocations for a burst", n)
	}
	if len(s.lengths) != 64 || s.lengths[0] != 1200+headerIPv6 {
		t.Errorf("%d datagrams, the first of %d bytes", len(s.lengths), s.lengths[0])
	}
}

func TestSendErrors(t *testing.T) {
	burst := make([][]byte, 200)
	for i := range burst {
		burst[i] = make([]byte, 1400)
	}
	for name, c := range map[string]struct {
		fails error
		sent  bool // the rest is tried
		mtu   int
		ended bool
	}{
		"too large":     {fails: &path.Unreachable{Errno: unix.EMSGSIZE, MTU: 1300}, sent: true, mtu: 1300 - headerIPv6},
		"relay is gone": {fails: &path.Unreachable{Errno: unix.ECONNREFUSED, By: netip.MustParseAddr("192.0.2.9")}, ended: true},
		"no route":      {fails: &path.Unreachable{Errno: unix.ENETUNREACH, By: netip.MustParseAddr("192.0.2.254")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{fails: c.fails}
			f := newSinkFlow(t, s)
			n, err := f.Send(burst)
			if n != 0 || err == nil {
				t.Fatalf("%d, %v", n, err)
			}
			if c.sent != (len(s.lengths) == len(burst)) {
				t.Errorf("%d of %d were tried", len(s.lengths), len(burst))
			}
			if u, ok := err.(*path.Unreachable); ok && u.MTU != c.mtu {
				t.Errorf("the path carries %d bytes, not %d", u.MTU, c.mtu)
			}
			if (f.over() != nil) != c.ended {
				t.Errorf("ended: %v", f.over())
			}
		})
	}
}
