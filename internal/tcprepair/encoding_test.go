package tcprepair

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"
)

// example has another value in each field.
func example() State {
	return State{Local: netip.MustParseAddrPort("192.0.2.1:443"), Remote: netip.MustParseAddrPort("198.51.100.2:50000"),
		Receive: []byte("hello"), Received: 0xfffffffe, Send: []byte("answer"), Sent: 7, Unsent: 2, MSS: 1460,
		SACK: true, Timestamps: true, Timestamp: 0x80000001, Scaling: true, SendScale: 7, ReceiveScale: 9,
		Window: Window{SendLast: 1, Send: 2, SendMost: 3, Receive: 4, ReceiveAt: 5}, SendBuffer: 87040, ReceiveBuffer: 131072,
		NoDelay: true, KeepAlive: KeepAlive{On: true, Idle: 15, Interval: 16, Probes: 9}, Congestion: "cubic"}
}

func example6() State {
	s := example()
	s.Local, s.Remote = netip.MustParseAddrPort("[2001:db8::1]:443"), netip.MustParseAddrPort("[2001:db8:1::2]:50000")
	return s
}

func TestEncoding(t *testing.T) {
	bare := State{Local: example().Local, Remote: example().Remote, Receive: []byte{}, Send: []byte{}, MSS: 536, KeepAlive: KeepAlive{false, 7200, 75, 9}}
	for _, want := range []State{example(), example6(), bare} {
		b, err := want.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var got State
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("it became\n%+v, %v, want\n%+v", got, err, want)
		}
		for n := range b {
			if got.UnmarshalBinary(b[:n]) == nil {
				t.Errorf("%d of %d bytes are a state", n, len(b))
			}
		}
		if got.UnmarshalBinary(append(b, 0)) == nil {
			t.Error("a byte too many is a state")
		}
		if b[0]++; got.UnmarshalBinary(b) == nil {
			t.Error("another version is a state")
		}
	}
}

func TestImpossibleStates(t *testing.T) {
	for name, change := range map[string]func(*State){
		"no address":           func(s *State) { s.Local = netip.AddrPort{} },
		"two families":         func(s *State) { s.Local = example6().Local },
		"port 0":               func(s *State) { s.Remote = netip.AddrPortFrom(s.Remote.Addr(), 0) },
		"any address":          func(s *State) { s.Remote = netip.MustParseAddrPort("0.0.0.0:1") },
		"multicast":            func(s *State) { s.Remote = netip.MustParseAddrPort("224.0.0.1:1") },
		"broadcast":            func(s *State) { s.Remote = netip.MustParseAddrPort("255.255.255.255:1") },
		"an address of a link": func(s *State) { s.Remote = netip.MustParseAddrPort("169.254.0.1:1") },
		"mapped":               func(s *State) { s.Remote = netip.MustParseAddrPort("[::ffff:192.0.2.1]:1") },
		"a long name":          func(s *State) { s.Congestion = "0123456789abcdef" },
		"a name with a zero":   func(s *State) { s.Congestion = "cu\x00ic" },
		"a name with a space":  func(s *State) { s.Congestion = "cub ic" },
		"more unsent than all": func(s *State) { s.Unsent = len(s.Send) + 1 },
		"less than none":       func(s *State) { s.Unsent = -1 },
		"no MSS":               func(s *State) { s.MSS = 0 },
		"scale 15":             func(s *State) { s.SendScale = 15 },
		"scale, not agreed":    func(s *State) { s.Scaling = false },
		"time, not agreed":     func(s *State) { s.Timestamps = false },
		"more than the most":   func(s *State) { s.Window.Send = s.Window.SendMost + 1 },
		"a window of 4 GB":     func(s *State) { s.Window.Receive = 1<<32 - 1 },
		"a buffer of 4 GB":     func(s *State) { s.ReceiveBuffer = 1<<32 - 1 },
		"no interval":          func(s *State) { s.KeepAlive.Interval = 0 },
		"probes":               func(s *State) { s.KeepAlive.Probes = 128 },
		"a long queue":         func(s *State) { s.Receive = make([]byte, MaxQueue+1) },
	} {
		s := example()
		if change(&s); s.check() == nil {
			t.Errorf("%s: it passes", name)
		}
		if b, err := s.MarshalBinary(); err == nil {
			t.Errorf("%s: it is encoded as %x", name, b)
		}
	}
}

func FuzzState(f *testing.F) {
	for _, s := range []State{example(), example6()} {
		b, err := s.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		if s.UnmarshalBinary(b) != nil {
			return
		}
		again, err := s.MarshalBinary()
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%+v\nof      %x\nbecomes %x, %v", s, b, again, err)
		}
	})
}
