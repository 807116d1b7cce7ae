package quicprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v3"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"

	"heddle/internal/polltest"
	"heddle/path"
)

// negotiation is what a server answers to a question with these connection ids.
func negotiation(destination, source []byte, versions ...uint32) []byte {
	out := []byte{0xff, 0, 0, 0, 0, byte(len(source))}
	out = append(out, source...)
	out = append(append(out, byte(len(destination))), destination...)
	for _, v := range versions {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return out
}

func TestParseVersions(t *testing.T) {
	question, d, s := versionQuestion()
	if len(question) != minDatagram || question[0]&0xc0 != 0xc0 || len(d) != 8 || len(s) != 8 {
		t.Fatalf("question of %d bytes, ids of %d and %d", len(question), len(d), len(s))
	}
	long := make([]uint32, maxVersions+1)
	for _, c := range []struct {
		name string
		data []byte
		want []uint32
		bad  string
	}{
		{"two, one of them greased", negotiation(d, s, version2, 0x3a4a5a6a, version1, version2), []uint32{version2, version1}, ""},
		{"greased only", negotiation(d, s, 0x3a4a5a6a), []uint32{}, ""},
		{"none", negotiation(d, s), nil, "cut short"},
		{"cut in a version", negotiation(d, s, version1)[:24], nil, "cut short"},
		{"cut in an id", negotiation(d, s)[:10], nil, "cut short"},
		{"ids the wrong way", negotiation(s, d, version1), nil, "another question"},
		{"too many", negotiation(d, s, long...), nil, "65 versions"},
		{"another version", append([]byte{0xff, 0, 0, 0, 1}, negotiation(d, s, version1)[5:]...), nil, "no version negotiation"},
		{"short header", append([]byte{0x40}, negotiation(d, s, version1)[1:]...), nil, "no version negotiation"},
		{"longest ids", negotiation(make([]byte, 255), make([]byte, 255), version1), nil, "another question"},
		{"empty", nil, nil, "no version negotiation"},
	} {
		got, err := parseVersions(c.data, d, s)
		if c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) || c.bad == "" && (err != nil || !slices.Equal(got, c.want)) {
			t.Errorf("%s: %v, %v; want %v, %q", c.name, got, err, c.want, c.bad)
		}
	}
	for v, want := range map[uint32]string{version1: "v1", version2: "v2", 0xff00001d: "draft-29", 0x51303433: "0x51303433"} {
		if got := versionName(v); got != want {
			t.Errorf("version %x: %s, want %s", v, got, want)
		}
	}
}

func FuzzParseVersions(f *testing.F) {
	_, d, s := versionQuestion()
	f.Add(negotiation(d, s, version1, version2), d, s)
	f.Add([]byte{0x80, 0, 0, 0, 0, 255, 1}, d, s)
	f.Fuzz(func(t *testing.T, data, d, s []byte) {
		versions, err := parseVersions(data, d, s)
		if err != nil {
			return
		}
		if len(versions) > maxVersions || len(versions) > len(data)/4 {
			t.Errorf("%d versions of %d bytes", len(versions), len(data))
		}
		for _, v := range versions {
			if v == 0 || v&0x0f0f0f0f == 0x0a0a0a0a {
				t.Errorf("version %x", v)
			}
		}
	})
}

func binding(t testing.TB, class stun.MessageType, id [12]byte, ip net.IP) []byte {
	t.Helper()
	setters := []stun.Setter{stun.NewTransactionIDSetter(id), class}
	if ip != nil {
		setters = append(setters, &stun.XORMappedAddress{IP: ip, Port: 4444})
	}
	m, err := stun.Build(setters...)
	if err != nil {
		t.Fatal(err)
	}
	return m.Raw
}

func TestParseBinding(t *testing.T) {
	id, other := [12]byte{1}, [12]byte{2}
	good := binding(t, stun.BindingSuccess, id, net.IPv4(192, 0, 2, 7))
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"IPv4", good, "192.0.2.7"},
		{"IPv6", binding(t, stun.BindingSuccess, id, net.ParseIP("2001:db8::7")), "2001:db8::7"},
		{"other question", binding(t, stun.BindingSuccess, other, net.IPv4(192, 0, 2, 7)), "invalid IP"},
		{"refusal", binding(t, stun.BindingError, id, nil), "invalid IP"},
		{"no address", binding(t, stun.BindingSuccess, id, nil), "invalid IP"},
		{"any address", binding(t, stun.BindingSuccess, id, net.IPv4zero), "invalid IP"},
		{"cut", good[:len(good)-3], "invalid IP"},
		{"empty", nil, "invalid IP"},
	} {
		if got, err := parseBinding(c.data, id); got.String() != c.want || (err == nil) != got.IsValid() {
			t.Errorf("%s: %v, %v; want %s", c.name, got, err, c.want)
		}
	}
}

func FuzzParseBinding(f *testing.F) {
	f.Add(binding(f, stun.BindingSuccess, [12]byte{}, net.IPv4(192, 0, 2, 7)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := parseBinding(data, [12]byte{}); (err == nil) != (a.IsValid() && !a.IsUnspecified()) {
			t.Errorf("%v, %v", a, err)
		}
	})
}

func TestExits(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	go func() { // says that b and c leave through one address; a gets no answer that counts
		buffer := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			m := &stun.Message{Raw: buffer[:n]}
			if m.Decode() != nil {
				continue
			}
			id, ip := m.TransactionID, net.IPv4(198, 51, 100, 1)
			if from.Addr().String() == "127.0.0.2" {
				ip = net.IPv4zero
			}
			pc.WriteToUDPAddrPort(binding(t, stun.BindingSuccess, id, ip), from)
		}
	}()
	o := s.options(3)
	o.STUN, o.Get = pc.LocalAddr().String(), "/small"
	o.MaxBytes = 40_000 // enough for the handshakes
	polltest.Again(t, func(try int) error {
		o.pace.stun = 200 * time.Millisecond << try
		r := probed(t, o)
		if r.Paths[0].Exit != "" || r.Paths[1].Exit != "198.51.100.1" || r.Paths[2].Exit != "198.51.100.1" {
			return fmt.Errorf("paths %+v", r.Paths)
		}
		notes := strings.Join(r.Notes, "\n")
		for _, want := range []string{"b and c leave through one exit", "nobody knows the exit of path a"} {
			if !strings.Contains(notes, want) {
				return fmt.Errorf("no note says %q:\n%s", want, notes)
			}
		}
		return nil
	})
}

func TestRecorder(t *testing.T) {
	r := newRecorder()
	if p, _, _ := r.server(); p != nil {
		t.Errorf("parameters before the handshake: %+v", p)
	}
	id := quic.ConnectionIDFromBytes([]byte{1, 2, 3, 4, 5})
	r.RecordEvent(qlog.ParametersSet{Initiator: qlog.InitiatorLocal, ActiveConnectionIDLimit: 99})
	r.RecordEvent(qlog.ParametersSet{Initiator: qlog.InitiatorRemote, DisableActiveMigration: true, ActiveConnectionIDLimit: 8, InitialSourceConnectionID: id,
		MaxUDPPayloadSize: 1500, PreferredAddress: &qlog.PreferredAddress{IPv4: netip.MustParseAddrPort("192.0.2.9:443")}})
	for n := range uint64(maxConnectionIDs + 9) {
		frame := &qlog.NewConnectionIDFrame{SequenceNumber: 2 + n, ConnectionID: id}
		r.RecordEvent(qlog.PacketReceived{Header: qlog.PacketHeader{PacketType: qlog.PacketTypeRetry}, Frames: []qlog.Frame{{Frame: frame}, {Frame: frame}}})
	}
	p, ids, retry := r.server()
	if !p.DisableActiveMigration || p.ActiveConnectionIDLimit != 8 || p.PreferredAddress.IPv4 != "192.0.2.9:443" || p.PreferredAddress.IPv6 != "" || !retry {
		t.Errorf("parameters %+v, retry %v", p, retry)
	}
	if ids.Given != maxConnectionIDs+2 || ids.Length != 5 {
		t.Errorf("connection ids %+v", ids)
	}
}

func TestSearchForPeriod(t *testing.T) {
	const ms = time.Millisecond
	periods := usual.periods
	for _, c := range []struct {
		name     string
		ratio    map[time.Duration]float64 // 1 where none is given
		tried    string
		shortest string
	}{
		{"all hold", nil, "100ms 50ms 20ms 10ms", "10ms"},
		{"short ones fail", map[time.Duration]float64{20 * ms: 0.8, 10 * ms: 0.1}, "100ms 50ms 20ms", "50ms"},
		{"long ones hold", map[time.Duration]float64{100 * ms: 0.7, 200 * ms: 0.9}, "100ms 200ms", "200ms"},
		{"none holds", map[time.Duration]float64{100 * ms: 0.5, 200 * ms: 0.6, 500 * ms: 0.89}, "100ms 200ms 500ms", ""},
	} {
		var done []Case
		var tried []string
		for i := next(nil, periods); i >= 0; i = next(done, periods) {
			ratio, ok := c.ratio[periods[i]]
			if !ok {
				ratio = 1
			}
			done = append(done, Case{Change: changeAddress, Every: periods[i].String(), Ratio: ratio, Survived: true})
			tried = append(tried, periods[i].String())
		}
		if got := strings.Join(tried, " "); got != c.tried {
			t.Errorf("%s: tried %s, want %s", c.name, got, c.tried)
		}
		if got := shortest(done, changeAddress); got != c.shortest {
			t.Errorf("%s: %q is the shortest, want %q", c.name, got, c.shortest)
		}
	}
	if i := next(nil, periods[:1]); i != 0 {
		t.Errorf("of one period, %d is first", i)
	}
	// A period that failed casts doubt on a shorter one that held.
	if got := shortest([]Case{{Change: changePort, Survived: true, Every: "100ms", Ratio: 0.5}, {Change: changePort, Survived: true, Every: "50ms", Ratio: 1}}, changePort); got != "" {
		t.Errorf("shortest is %q", got)
	}
}

func TestDistrusts(t *testing.T) {
	pair := func(address, port float64) []Case {
		return []Case{{Change: changeAddress, Survived: true, Every: "50ms", Paths: 2, Ratio: 1}, {Change: changeAddress, Survived: true, Every: "100ms", Paths: 2, Ratio: address},
			{Change: changePort, Survived: true, Every: "100ms", Paths: 2, Ratio: port}}
	}
	for _, c := range []struct {
		address, port float64
		want          string
	}{{0.5, 1, distrustsAddresses}, {0.5, 0.5, distrustsChanges}, {0.95, 1.2, distrustsNothing}, {0.89, 0.9, distrustsNothing}, {1, 0.5, distrustsNothing}} {
		if got := distrusts(pair(c.address, c.port)); got != c.want {
			t.Errorf("%v and %v: %q, want %q", c.address, c.port, got, c.want)
		}
	}
	if got := distrusts(pair(1, 1)[:2]); got != "" {
		t.Errorf("a claim without a pair: %q", got)
	}
}

func TestSplitServer(t *testing.T) {
	for _, c := range []struct {
		text, host string
		port       uint16
	}{
		{"www.example.com", "www.example.com", 443}, {"www.example.com:8443", "www.example.com", 8443}, {"192.0.2.1", "192.0.2.1", 443},
		{"[2001:db8::1]:4433", "2001:db8::1", 4433}, {"2001:db8::1", "2001:db8::1", 443}, {"[2001:db8::1]", "2001:db8::1", 443},
		{"", "", 0}, {"a:0", "", 0}, {"a:b", "", 0}, {":443", "", 0}, {"https://a/", "", 0}, {"a:70000", "", 0}, {"a b:1", "", 0}, {"a:1:2", "", 0},
	} {
		got, err := splitServer(c.text, httpsPort)
		if got.Host != c.host || got.Port != c.port || (err == nil) != (c.host != "") {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
		if e, ok := errors.AsType[*path.Error](err); err != nil && (!ok || e.Hint == "") {
			t.Errorf("%q: no hint", c.text)
		}
	}
}
