package split

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/clienthello"
	"heddle/path"
	"heddle/schedule"
)

const quicV2 = 0x6b3343cf

// longPacket is a packet with a long header (RFC 9000, section 17.2) to and from these connection ids, filled up to a size.
func longPacket(version uint32, kind clienthello.Kind, to, from string, size int) []byte {
	if version == quicV2 {
		kind = (kind + 1) & 3
	}
	p := binary.BigEndian.AppendUint32([]byte{0xc0 | byte(kind)<<4}, version)
	p = append(append(p, byte(len(to))), to...)
	p = append(append(p, byte(len(from))), from...)
	if kind == 0 && version != quicV2 || kind == 1 && version == quicV2 {
		p = append(p, 0) // no token
	}
	rest := max(size-len(p)-2, 20)
	return append(binary.BigEndian.AppendUint16(p, 0x4000|uint16(rest)), make([]byte, rest)...)
}

func initial(to, from string) []byte {
	return longPacket(1, clienthello.KindInitial, to, from, quicDatagram)
}

func shaking(to, from string) []byte {
	return longPacket(1, clienthello.KindHandshake, to, from, 100)
}

func retry(to, from string) []byte { return longPacket(1, clienthello.KindRetry, to, from, 100) }

func earlyData(to, from string) []byte {
	return longPacket(1, clienthello.KindEarlyData, to, from, 500)
}

func shortPacket(to string) []byte {
	return append([]byte{0x4f}, to+strings.Repeat("x", 40)...)
}

// moment is a datagram of the client or the server, so many milliseconds after the first one.
type moment struct {
	ms   int
	up   []byte // by which path it must leave is in want
	down []byte
}

// play sends and receives at the moments, and returns the paths of what was sent, such as "aab".
func play(t *testing.T, change func(*Options), moments []moment) (ways string, s *Session) {
	t.Helper()
	s, paths := newFake(t, 3, change)
	began := time.Now()
	for _, m := range moments {
		time.Sleep(time.Duration(m.ms)*time.Millisecond - time.Since(began))
		if m.down != nil {
			paths[0].put(fakeServer, m.down)
			synctest.Wait()
			continue
		}
		if err := s.Send([][]byte{m.up}); err != nil {
			t.Fatal(err)
		}
		for i, p := range paths {
			for range p.take() {
				ways += string(rune('a' + i))
			}
		}
	}
	return ways, s
}

// Each session has paths a, b and c in turn, packet by packet, so that only a handshake keeps one.
func TestHandshakeKeepsItsPathUntilConfirmed(t *testing.T) {
	const first, id, server = "original", "client", "server"
	up := func(ms int, d []byte) moment { return moment{ms: ms, up: d} }
	down := func(ms int, d []byte) moment { return moment{ms: ms, down: d} }
	data := shortPacket(server)
	flight := slices.Concat(longPacket(1, clienthello.KindInitial, server, id, 1000), shaking(server, id), shortPacket(server))
	answer := slices.Concat(longPacket(1, clienthello.KindInitial, id, server, 1000), shaking(id, server))
	plain := []moment{up(0, initial(first, id)), down(40, answer), down(41, shortPacket(id)), up(42, flight), up(42, data), down(60, shortPacket(id)), up(61, data)}
	then := func(before []moment, after ...moment) []moment { return append(slices.Clone(before), after...) }
	for name, c := range map[string]struct {
		moments []moment
		want    string
	}{
		"confirmed a round trip after the second flight": {then(plain, down(82, shortPacket(id)), up(83, data), up(83, data), up(83, data), up(83, data)), "aaaabcab"},
		"HANDSHAKE_DONE behind an acknowledgement":       {then(plain, down(82, slices.Concat(shaking(id, server), shortPacket(id))), up(83, data), up(83, data)), "aaaabc"},
		"an acknowledgement with padding behind it":      {then(plain, down(82, slices.Concat(shaking(id, server), make([]byte, 50))), up(83, data), up(83, data)), "aaaaaa"},
		"the second flight is lost": {then(plain, down(140, shaking(id, server)), up(141, flight), down(150, shortPacket(id)), up(151, data),
			down(181, shortPacket(id)), up(182, data), up(182, data)), "aaaaaabc"},
		"repeated after the server's first data": {then(plain, down(82, shortPacket(id)), up(83, data), up(100, shaking(server, id)), up(101, data),
			down(102, shortPacket(id)), up(103, data), down(140, shortPacket(id)), up(141, data)), "aaaabaaac"},
		"lost Initials": {[]moment{up(0, initial(first, id)), up(300, initial(first, id)), up(900, initial(first, id)), down(940, answer), up(941, flight)}, "aaaa"},
		"Retry": {[]moment{up(0, initial(first, id)), down(40, retry(id, "retry")), up(41, initial("retry", id)), down(81, answer), down(82, shortPacket(id)), up(83, flight),
			up(84, data), down(123, shortPacket(id)), up(124, data), up(124, data)}, "aaaabc"},
		"version negotiation": {[]moment{up(0, longPacket(0x1a2a3a4a, clienthello.KindInitial, first, id, quicDatagram)), down(40, longPacket(0, 0, id, first, 100)),
			up(41, initial(first, id)), down(81, answer), up(82, flight), down(150, shortPacket(id)), up(151, data), up(151, data)}, "aaabc"},
		"version 2": {[]moment{up(0, longPacket(quicV2, clienthello.KindInitial, first, id, quicDatagram)), down(40, longPacket(quicV2, clienthello.KindInitial, id, server, 1200)),
			up(41, longPacket(quicV2, clienthello.KindHandshake, server, id, 100)), up(42, data), down(81, shortPacket(id)), up(82, data)}, "aaab"},
		"a second flight that only acknowledges": {[]moment{up(0, initial(first, id)), down(40, answer), up(41, longPacket(1, clienthello.KindInitial, server, id, quicDatagram)),
			down(81, shortPacket(id)), up(82, flight), up(83, data), down(122, shortPacket(id)), up(123, data)}, "aaaab"},
		"0-RTT: the server answers before it has the second flight": {[]moment{up(0, slices.Concat(initial(first, id), earlyData(first, id))), up(1, earlyData(first, id)), down(40, answer), up(41, flight),
			down(100, shortPacket(id)), up(101, data), up(165, flight), down(300, shortPacket(id)), up(301, data), down(326, shortPacket(id)), up(327, data)}, "aaaaaab"},
		"no client id": {[]moment{up(0, initial(first, "")), down(40, slices.Concat(longPacket(1, clienthello.KindInitial, "", server, 1000))),
			up(41, slices.Concat(longPacket(1, clienthello.KindInitial, server, "", 1000), shaking(server, ""))), up(42, data), down(81, shortPacket("")), up(82, data), up(82, data)}, "aaabc"},
		"no client id, and another one of the server for the second flight": {[]moment{up(0, initial(first, "")), down(40, longPacket(1, clienthello.KindInitial, "", server, 1200)),
			up(41, slices.Concat(longPacket(1, clienthello.KindInitial, "newer!", "", 1000), shaking("newer!", ""))), up(42, shortPacket("newer!")), down(81, shortPacket("")),
			up(82, shortPacket("newer!")), up(82, shortPacket("newer!"))}, "aaabc"},
		"no client id, and the acknowledgement comes first": {[]moment{up(0, initial(first, "")), down(40, longPacket(1, clienthello.KindInitial, "", server, 1200)),
			up(41, initial("newer!", "")), up(42, shaking("newer!", "")), down(81, shortPacket("")), up(82, data), up(82, data)}, "aaabc"},
		"one connection after another, without client ids": {[]moment{up(0, initial(first, "")), down(40, longPacket(1, clienthello.KindInitial, "", server, 1200)), up(41, shaking(server, "")),
			down(81, shortPacket("")), up(82, data), up(83, initial("again", "")), up(84, initial("again", "")), down(123, longPacket(1, clienthello.KindInitial, "", "other", 1200)),
			up(124, shaking("other", "")), up(125, shortPacket("other")), down(164, shortPacket("")), up(165, data)}, "aab" + "cccc" + "a"},
		"a new id before the confirmation":         {then(plain, up(62, shortPacket("newer!")), down(82, shortPacket(id)), up(83, shortPacket("newer!"))), "aaaaab"},
		"the server changes its id for the client": {then(plain, down(82, shortPacket("newer!")), up(83, data)), "aaaab"},
		"two connections": {then(plain, down(82, shortPacket(id)), up(83, data), // b
			up(84, initial("second", "clien2")), up(85, data), up(86, data), down(124, slices.Concat(longPacket(1, clienthello.KindInitial, "clien2", "serve2", 1200))), // c, a, b
			up(125, shaking("serve2", "clien2")), up(126, shortPacket("serve2")), up(127, shortPacket("newer2")), up(128, data), // c, c, c, c by its turn
			down(165, shortPacket(id)), up(165, shortPacket("serve2")), down(165, shortPacket("newest")), up(166, shortPacket("serve2")), up(167, data)), "aaaab" + "cab" + "cccc" + "cab"},
		"a connection older than the session":     {[]moment{up(0, data), up(0, shaking(server, id)), up(0, data), up(0, data)}, "abca"},
		"no QUIC: too short, or another protocol": {[]moment{up(0, initial(first, id)[:1199]), up(0, initial(first, id)[:1199]), up(0, bytes.Repeat([]byte{0x80}, 1200)), up(0, bytes.Repeat([]byte{1, 0, 0, 0}, 300))}, "abca"},
		"a server that only sends long headers":   {then(plain, slices.Repeat([]moment{down(100, shaking(id, server)), up(100, shaking(server, id))}, 90)...), strings.Repeat("a", 94)},
		"not confirmed within the time":           {then(plain, up(9000, data), up(10001, data), up(10001, shaking(server, id)), down(10002, shortPacket(id)), up(10003, data)), "aaaaabca"},
		"not confirmed within so many datagrams":  {then(plain, slices.Repeat([]moment{up(70, data)}, handshakePackets-2)...), strings.Repeat("a", handshakePackets) + "bc"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, _ := play(t, nil, c.moments)
				if got != c.want {
					t.Errorf("datagrams left by %s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestHandshakeWithUnitsOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		every := func(o *Options) { o.Schedule.Every = schedule.Every{Period: 10 * time.Millisecond} }
		answer := slices.Concat(longPacket(1, clienthello.KindInitial, "client", "server", 1000), shaking("client", "server"))
		got, s := play(t, every, []moment{{ms: 0, up: initial("original", "client")}, {ms: 35, up: initial("original", "client")}, {ms: 55, down: answer},
			{ms: 56, up: shaking("server", "client")}, {ms: 57, up: shortPacket("server")}, {ms: 78, up: shortPacket("server")}, {ms: 101, down: shortPacket("client")},
			{ms: 102, up: shortPacket("server")}, {ms: 108, up: shortPacket("server")}, {ms: 111, up: shortPacket("server")}})
		if want := "aaaaabbc"; got != want {
			t.Errorf("datagrams left by %s, want %s", got, want)
		}
		if claim := s.Status("relay").Claim; !strings.HasSuffix(claim, "so far by a") {
			t.Errorf("it claims %q", claim)
		}
	})
}

// A path on which nothing comes back loses the handshake, as it loses everything else.
func TestHandshakeLeavesADeadPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var moments []moment
		for _, ms := range []int{0, 300, 900, 2100, 4500} {
			moments = append(moments, moment{ms: ms, up: initial("original", "client")})
		}
		if got, _ := play(t, nil, moments); got != "aaabb" {
			t.Errorf("datagrams left by %s", got)
		}
	})
}

// A rule that ends within the handshake does not move it, and the claim names the paths that saw it.
func TestRuleThatEndsWithinAHandshake(t *testing.T) {
	f, direct, office := withOffice(t, 2, Rule{When{Packets: 1}, "office"})
	for range 3 {
		if err := f.Send([][]byte{initial("original", "client")}); err != nil {
			t.Fatal(err)
		}
	}
	if o, d := count(office), count(direct...); o != 3 || d != 0 {
		t.Errorf("the rule's path carried %d Initials, the others %d", o, d)
	}
	if claim := f.Status("relay").Claim; !strings.HasSuffix(claim, "so far by office") {
		t.Errorf("it claims %q", claim)
	}
}

// The port of a path stays too, even if other connections come back to that path.
func TestHandshakeKeepsItsPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rotated := 0
		s, paths := closedFake(t, 1, func(o *Options) { o.MinPaths = 1 })
		paths[0].rotate = func() error { rotated++; return nil }
		openFake(t, s)
		sends := func(d []byte) {
			t.Helper()
			if err := s.Send([][]byte{d}); err != nil {
				t.Fatal(err)
			}
		}
		sends(initial("original", "client"))
		before := rotated
		for range 3 {
			sends(initial("original", "client"))
		}
		s.shakes.up = idSet{6, [][]byte{[]byte("server")}}
		sends(shortPacket("server"))
		if rotated != before {
			t.Errorf("the port changed %d times within the handshake", rotated-before)
		}
		s.shakes.end(s.shakes.list[0])
		if sends(shortPacket("server")); rotated == before {
			t.Error("the port does not change after the handshake")
		}
	})
}

func TestHandshakeThatIsNeverConfirmedIsReported(t *testing.T) {
	s, _ := newFake(t, 2, nil)
	for range handshakePackets + 1 {
		s.Send([][]byte{initial("original", "client")})
	}
	if w := fmt.Sprint(s.Status("relay").Warnings); !strings.Contains(w, "was not confirmed within 10s or 500 datagrams") {
		t.Errorf("it warns %s", w)
	}
}

// What a stranger sends, or a program, never stops a session, and the tables stay bounded.
func FuzzHandshakes(f *testing.F) {
	f.Add(slices.Concat(initial("original", "client"), []byte("up"), shaking("client", "server")), uint8(9))
	f.Add(shortPacket("server"), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		var h handshakes
		now := time.Unix(0, 0)
		for n, d := range bytes.Split(text, []byte("up")) {
			now = now.Add(time.Duration(step) * time.Millisecond)
			if n%2 == 1 {
				h.heard(now, path.Inbound{Data: d, Size: max(len(d), 1)})
			} else if len(d) > 0 {
				if c, n := h.sent(now, [][]byte{d}); n != 1 || c != nil && (c.over || !c.running) {
					t.Fatalf("%d taken for %+v", n, c)
				}
			}
		}
		if len(h.list) > mostHandshakes || len(h.up.ids) > mostIDs || len(h.down.ids) > mostIDs {
			t.Fatalf("%d handshakes, %d ids", len(h.list), len(h.up.ids)+len(h.down.ids))
		}
	})
}
