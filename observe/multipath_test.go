package observe

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// The options of RFC 8684, sections 3.1 to 3.3, from their subtypes on.
var be = binary.BigEndian

func capable(client, server uint64, length int) []byte {
	b := be.AppendUint64([]byte{0x01, 0x01}, client)
	if b = be.AppendUint64(b, server); length > 0 {
		b = be.AppendUint16(b, uint16(length))
	}
	return b
}

func join(token uint32) []byte {
	return be.AppendUint32(be.AppendUint32([]byte{0x10, 1}, token), 0x01020304)
}

// dss is a mapping, and before it an acknowledgement, in one of their forms each.
func dss(form int, sequence uint64, start uint32, length int) []byte {
	b := []byte{0x20, []byte{0x04, 0x05, 0x07}[form&3] | byte(form&4)<<1}
	switch form & 3 {
	case 1:
		b = be.AppendUint32(b, 0xaaaaaaaa)
	case 2:
		b = be.AppendUint64(b, 0xaaaaaaaaaaaaaaaa)
	}
	if form&4 > 0 {
		b = be.AppendUint64(b, sequence)
	} else {
		b = be.AppendUint32(b, uint32(sequence))
	}
	b = be.AppendUint16(be.AppendUint32(b, start), uint16(length))
	if form&8 > 0 {
		b = append(b, 0xcc, 0xcc) // checksum
	}
	return b
}

// subflow writes one side of a subflow as one observer saw it.
type subflow struct {
	tcpStream
	isn  uint32
	said int // bytes so far
}

func (s *subflow) begin(t *testing.T, write func(time.Duration, []byte), options ...[]byte) {
	write(0, s.segment(t, true, s.isn, true, nil, options...))
	write(0, s.segment(t, false, 499, true, nil))
}

func (s *subflow) say(t *testing.T, write func(time.Duration, []byte), payload []byte, options ...[]byte) {
	write(0, s.segment(t, true, s.isn+1+uint32(s.said), false, payload, options...))
	s.said += len(payload)
}

// keyBeforeWrap is a key for which the lower 32 bits of the first numbers wrap around soon.
func keyBeforeWrap(random *rand.Rand) uint64 {
	for {
		if key := random.Uint64(); uint32(firstOf(key)) > 0xffff_b000 {
			return key
		}
	}
}

func TestSubflowsArePutInTheirPlaces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	client, server := keyBeforeWrap(random), random.Uint64()
	said := make([]byte, 60_000)
	for i := range said {
		said[i] = byte(random.Uint32())
	}
	at := netip.AddrPortFrom(webServer, 80)
	flows := []*subflow{
		{tcpStream: tcpStream{netip.MustParseAddrPort("10.0.1.2:50000"), at}, isn: random.Uint32()},
		{tcpStream: tcpStream{netip.MustParseAddrPort("10.0.1.2:50001"), at}, isn: 0xffff_ff00},
	}
	var owner []int // of each byte
	observers := make([][]Conversation, len(flows))
	for i, f := range flows {
		owner = owner[:0]
		again := rand.New(rand.NewPCG(seed, 1)) // the same for both
		observers[i] = conversations(t, func(write func(time.Duration, []byte)) {
			if i == 0 {
				f.begin(t, write)
				f.say(t, write, nil, capable(client, server, 0))
			} else {
				f.begin(t, write, join(tokenOf(server)))
			}
			for from := 0; from < len(said); {
				n := min(1+again.IntN(3000), len(said)-from)
				who, form := again.IntN(2), again.IntN(16)
				if form&3 == 3 {
					form--
				}
				if from == 0 {
					who, n = 0, 700
				}
				owner = append(owner, slices.Repeat([]int{who}, n)...)
				part := said[from : from+n]
				from += n
				if who != i {
					continue
				}
				option := dss(form, firstOf(client)+uint64(from-n), uint32(f.said)+1, n)
				if from == n {
					option = capable(client, server, n)
				}
				f.say(t, write, part[:n/2], option) // one mapping for two segments
				f.say(t, write, part[n/2:], option)
				f.said -= n / 3
				f.say(t, write, part[n-n/3:]) // again, as after a loss
			}
			write(0, f.segment(t, false, 500, false, []byte("yes")[i:i+1], dss(4, firstOf(server)+uint64(i), 1, 1)))
		})
	}
	check := func(all []Conversation, want func(owner int) bool) {
		t.Helper()
		found := Connections(all)
		if len(found) != 1 || !found[0].Placed || found[0].Token != tokenOf(server) {
			t.Fatalf("%d connections: %+v", len(found), found)
		}
		stream, known := make([]byte, len(said)), make([]bool, len(said))
		var pieces, down []Piece
		for _, part := range found[0].Subflows {
			pieces, down = append(pieces, part.Up...), append(down, part.Down...)
		}
		for _, run := range Runs(pieces) {
			copy(stream[run.Offset:], run.Bytes)
			for i := range run.Bytes {
				known[int(run.Offset)+i] = true
			}
		}
		for i := range said {
			if known[i] != want(owner[i]) || known[i] && stream[i] != said[i] {
				t.Fatalf("byte %d: known %v", i, known[i])
			}
		}
		if runs := Runs(down); len(runs) != 1 || runs[0].Offset != 0 || !bytes.HasPrefix([]byte("ye"), runs[0].Bytes) {
			t.Errorf("what came back: %+v", runs)
		}
	}
	check(slices.Concat(observers[1], observers[0]), func(int) bool { return true })
	check(observers[0], func(owner int) bool { return owner == 0 })

	lone := Connections(observers[1])
	if len(lone) != 1 || lone[0].Placed || len(lone[0].Subflows) != 1 || lone[0].Subflows[0].Up != nil {
		t.Fatalf("without the first subflow: %+v", lone)
	}
}

// A server may begin a subflow too, and what it says there is what the connection's server says.
func TestSubflowBegunByTheServer(t *testing.T) {
	const client, server = 1, 2
	at := netip.AddrPortFrom(webServer, 80)
	all := conversations(t, func(write func(time.Duration, []byte)) {
		first := &subflow{tcpStream: tcpStream{netip.MustParseAddrPort("10.0.1.2:50000"), at}, isn: 1}
		first.begin(t, write)
		first.say(t, write, []byte("question"), capable(client, server, 8))
		back := &subflow{tcpStream: tcpStream{netip.MustParseAddrPort("203.0.113.80:40000"), netip.MustParseAddrPort("10.0.1.3:50001")}, isn: 9}
		back.begin(t, write, join(tokenOf(client)))
		back.say(t, write, []byte("answer"), dss(4, firstOf(server), 1, 6))
	})
	found := Connections(all)
	if len(found) != 1 || len(found[0].Subflows) != 2 {
		t.Fatalf("%+v", found)
	}
	if down := found[0].Subflows[1].Down; len(down) != 1 || string(down[0].Bytes) != "answer" || len(found[0].Subflows[1].Up) != 0 {
		t.Errorf("%+v", found[0].Subflows[1])
	}
}

// What an option says is bounded by what the subflow carried, and numbers that cannot be lead nowhere.
func TestMappingsThatLie(t *testing.T) {
	const client, server = 1, 2
	f := &subflow{tcpStream: tcpStream{netip.MustParseAddrPort("10.0.1.2:50000"), netip.AddrPortFrom(webServer, 80)}, isn: 1}
	all := conversations(t, func(write func(time.Duration, []byte)) {
		f.begin(t, write)
		f.say(t, write, []byte("first"), capable(client, server, 65535))
		f.say(t, write, []byte("x"), dss(4, firstOf(client)+1<<60, 1, 1))
		f.say(t, write, []byte("x"), dss(4, firstOf(client)-1, 1, 1))
		f.say(t, write, []byte("x"), dss(4, firstOf(client), 0xffff_ffff, 65535))
		f.say(t, write, []byte("x"), dss(4, firstOf(client), 0, 65535))
		f.say(t, write, []byte("x"), []byte{0x20}, []byte{0x20, 0x0f}, []byte{0x01}, []byte{0xf0, 0, 0})
		f.say(t, write, []byte("rest"), dss(4, firstOf(client)+100, 11, 0)) // without an end
		f.say(t, write, []byte(" of it"))
	})
	if len(all) != 1 || len(all[0].Up) != 20 {
		t.Fatalf("%+v", all)
	}
	runs := Runs(Connections(all)[0].Subflows[0].Up)
	if len(runs) != 2 || string(runs[0].Bytes) != "firstxxxxxrest of it" || runs[1].Offset != 100 || string(runs[1].Bytes) != "rest of it" {
		t.Errorf("%+v", runs)
	}
}
