package split

import (
	"strings"
	"testing"
	"time"

	"heddle/path"
)

func TestParseWhen(t *testing.T) {
	for _, c := range []struct {
		text string
		want When
	}{
		{"quic-handshake", When{Handshake: true}},
		{"first 10p", When{Packets: 10}},
		{"first 3s", When{Period: 3 * time.Second}},
		{"port 53", When{Port: 53}},
	} {
		got, err := ParseWhen(c.text)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%q: %+v (%v), %v", c.text, got, got, err)
		}
	}
	for _, text := range []string{"", "quic", "first", "first 0p", "first -3s", "first 3", "port 0", "port 65536", "port x", "last 3s", "first 3s 4s"} {
		if got, err := ParseWhen(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	if _, err := ParseRule("first 3s"); err == nil {
		t.Error("a rule without a path was read")
	}
}

// long and short are datagrams as QUIC's first byte tells them apart.
func long(n int) [][]byte  { return datagrams(0xc3, n) }
func short(n int) [][]byte { return datagrams(0x43, n) }

func datagrams(first byte, n int) (out [][]byte) {
	for range n {
		out = append(out, append([]byte{first}, make([]byte, 1199)...))
	}
	return out
}

// withOffice makes a session over n paths in memory and one more beside them, which the rules use.
func withOffice(t *testing.T, n int, rules ...Rule) (f *Session, direct []*fakePath, office *fakePath) {
	office = &fakePath{name: t.Name() + "-office"}
	fakes.Store(office.name, office)
	f, direct = newFake(t, n, func(o *Options) {
		o.Beside = []path.Spec{{Name: "office", Kind: "fake", Arg: office.name}, {Name: "unused", Kind: "fake", Arg: "unused"}}
		o.Rules = rules
	})
	return f, direct, office
}

func count(paths ...*fakePath) (n int) {
	for _, p := range paths {
		n += len(p.take())
	}
	return n
}

func TestHandshakeGoesByOnePathAlone(t *testing.T) {
	f, direct, office := withOffice(t, 2, Rule{When{Handshake: true}, "office"})
	now := time.Now()
	f.now = func() time.Time { return now }
	rtt := 40 * time.Millisecond

	send := func(d [][]byte, toOffice, toDirect int) {
		t.Helper()
		if err := f.Send(d); err != nil {
			t.Fatal(err)
		}
		if o, d := count(office), count(direct...); o != toOffice || d != toDirect {
			t.Errorf("office got %d, the others %d; want %d and %d", o, d, toOffice, toDirect)
		}
	}
	hear := func(d [][]byte) {
		for _, d := range d {
			f.shakes.heard(now, path.Inbound{Data: d, Size: len(d)})
		}
	}
	one := func(d []byte) [][]byte { return [][]byte{d} }
	flight, answer, data := shaking("server", "client"), shaking("client", "server"), shortPacket("client")
	send(short(3), 0, 3) // a connection that is older than the relay
	send(append(one(initial("original", "client")), initial("original", "client")), 2, 0)
	now = now.Add(rtt)
	hear(append(one(answer), answer))
	hear(one(data)) // the server may send data before it has the client's last flight
	send(append(one(flight), short(2)...), 3, 0)
	now = now.Add(rtt / 2)
	hear(one(data)) // it left before the client's last flight came
	send(short(1), 1, 0)
	now = now.Add(rtt / 2)
	hear(one(answer))
	send(short(1), 1, 0)
	hear(one(data)) // HANDSHAKE_DONE
	send(short(5), 0, 5)
	send(append(short(2), flight), 1, 2) // a late long header still takes the office
	send(short(1), 1, 0)                 // and the server answers there until it is done again
}

func TestLongHeadersAreDroppedWhereTheirPathIsDown(t *testing.T) {
	f, direct, office := withOffice(t, 2, Rule{When{Handshake: true}, "office"})
	office.breaks(&path.Error{What: "path office", Why: "no device"})
	f.members[2].Check()
	if err := f.Send(long(4)); err != nil {
		t.Fatal(err)
	}
	if n := count(direct...) + count(office); n != 0 {
		t.Errorf("%d long headers left, though their path is down", n)
	}
	if s := f.Status("relay"); !strings.Contains(s.Claim, "handshake, which names the server, is seen by path office alone") {
		t.Errorf("it claims %q", s.Claim)
	}
	if s := f.Status("relay"); s.Withheld != 4 || s.Paths[2].Rules[0] != HandshakeWhen {
		t.Errorf("status says %d withheld, path %+v", s.Withheld, s.Paths[2])
	}
}

func TestNoTrialWithARuledDatagram(t *testing.T) {
	f, direct, office := withOffice(t, 3, Rule{When{Handshake: true}, "office"})
	f.members[0].Health.Refused("gone") // silent: it would be tried with the next datagram
	f.judge(f.now())
	if err := f.Send(long(1)); err != nil {
		t.Fatal(err)
	}
	if n := count(direct...); n != 0 || count(office) != 1 {
		t.Errorf("%d long headers went by the paths of the schedule", n)
	}
}

func TestFirstPacketsFirstSecondsAndPorts(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		rule   string
		office int // of ten datagrams, two at a time, a second apart
	}{
		{"first 3p=office", 3}, {"first 2500ms=office", 6}, {"port 51820=office", 10}, {"port 53=office", 0},
	} {
		t.Run(strings.Fields(c.rule)[1], func(t *testing.T) {
			r, err := ParseRule(c.rule)
			if err != nil {
				t.Fatal(err)
			}
			f, direct, office := withOffice(t, 2, r)
			f.now = func() time.Time { return now }
			for range 5 {
				if err := f.Send(short(2)); err != nil {
					t.Fatal(err)
				}
				now = now.Add(time.Second)
			}
			if o, d := count(office), count(direct...); o != c.office || o+d != 10 {
				t.Errorf("office got %d, the others %d; want %d of ten", o, d, c.office)
			}
		})
	}
}

func TestARuleWithoutItsPath(t *testing.T) {
	_, err := NewSession(Options{To: fakeServer.String(), Via: []path.Spec{{Name: "a", Kind: "fake", Arg: "a"}}, Rules: []Rule{{When{Port: 1}, "office"}}})
	if err == nil || !strings.Contains(err.Error(), "office") {
		t.Errorf("it says %v", err)
	}
}
