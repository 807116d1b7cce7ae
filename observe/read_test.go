package observe

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/errhint"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

var (
	alice = netip.MustParseAddrPort("10.0.1.2:40000")
	hello = []byte("hello")
)

// linkHeaders are what stands before an IPv4 packet on each link that is read.
var linkHeaders = []struct {
	name   string
	link   LinkType
	header []byte
}{
	{"raw", LinkRaw, nil},
	{"ethernet", LinkEthernet, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0}},
	{"vlan", LinkEthernet, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 5, 8, 0}},
	{"null", layers.LinkTypeNull, []byte{2, 0, 0, 0}},
	{"sll", layers.LinkTypeLinuxSLL, []byte{0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0}},
	{"sll2", layers.LinkTypeLinuxSLL2, []byte{8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 4, 6, 1, 2, 3, 4, 5, 6, 0, 0}},
}

func TestReadEveryLinkInBothFormats(t *testing.T) {
	ip := appendUDP(nil, alice, vpn, hello)
	for _, c := range linkHeaders {
		data := append(append([]byte(nil), c.header...), ip...)
		if c.link == LinkEthernet {
			data = append(data, make([]byte, 60-min(len(data), 60))...) // padded as Ethernet does
		}
		ci := gopacket.CaptureInfo{Timestamp: epoch, CaptureLength: len(data), Length: len(data)}
		var ng, plain bytes.Buffer
		w, err := NewWriter(&ng, c.link, "x", ClientComment(alice.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		p := pcapgo.NewWriterNanos(&plain)
		if err := errors.Join(w.Write(epoch, data, len(data)), w.Finish(7), p.WriteFileHeader(65535, c.link), p.WritePacket(ci, data)); err != nil {
			t.Fatal(err)
		}
		for format, file := range map[string]*bytes.Buffer{"pcapng": &ng, "pcap": &plain} {
			got, err := Read(file, Options{})
			if err != nil || len(got.Packets) != 1 {
				t.Errorf("%s in %s: %v %+v", c.name, format, err, got)
				continue
			}
			if pk := got.Packets[0]; pk.Size != len(ip) || !pk.Out || !pk.Time.Equal(epoch) {
				t.Errorf("%s in %s: %+v, want %d bytes out", c.name, format, pk, len(ip))
			}
			if f := got.Flows[0]; f.Client != alice || f.Server != vpn || f.Payload != int64(len(hello)) {
				t.Errorf("%s in %s: %+v", c.name, format, f)
			}
			if format == "pcapng" && (got.Missed != 7 || got.How != "capture") {
				t.Errorf("%s: missed %d, client by %s", c.name, got.Missed, got.How)
			}
		}
	}
}

func TestSizeIsThatOnTheWire(t *testing.T) {
	ip := appendUDP(nil, alice, vpn, make([]byte, 1000))
	var file bytes.Buffer
	w, err := NewWriter(&file, LinkRaw, "x", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(epoch, ip[:64], len(ip)), w.Flush()); err != nil { // cut to 64 bytes by the capture
		t.Fatal(err)
	}
	got, err := Read(&file, Options{})
	if err != nil || got.Packets[0].Size != len(ip) || got.Flows[0].Payload != 1000 {
		t.Errorf("%v %+v", err, got)
	}
}

// exchange is a capture of packets between the pairs, in turn.
func exchange(t *testing.T, comment string, pairs ...[2]netip.AddrPort) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, LinkRaw, "x", comment)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pairs {
		ip := appendUDP(nil, p[0], p[1], hello)
		if err := w.Write(epoch.Add(time.Duration(i)*time.Second), ip, len(ip)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestWhoIsTheClient(t *testing.T) {
	public, other := netip.MustParseAddrPort("192.0.2.9:4000"), netip.MustParseAddrPort("192.0.2.10:4001")
	dns := netip.MustParseAddrPort("10.0.9.53:53")
	type pair = [2]netip.AddrPort
	cases := []struct {
		name    string
		comment string
		given   []netip.Prefix
		pairs   []pair
		want    string // > client to server, < server to client, in order
		foreign uint64
	}{
		{"first speaks", "", nil, []pair{{public, other}, {other, public}}, "><", 0},
		{"private side, though the server is seen first", "", nil, []pair{{vpn, alice}, {alice, vpn}}, "<>", 0},
		{"a service's port", "", nil, []pair{{dns, alice}, {alice, dns}}, "<>", 0},
		{"comment", ClientComment(other.Addr()), nil, []pair{{public, other}, {other, public}}, "<>", 0},
		{"given, against the comment", ClientComment(other.Addr()), []netip.Prefix{netip.PrefixFrom(public.Addr(), 32)}, []pair{{public, other}, {other, public}}, "><", 0},
		{"a network", "", []netip.Prefix{netip.MustParsePrefix("192.0.2.11/31")}, []pair{{public, other}, {other, public}, {alice, vpn}}, "<>", 1},
		{"others are left out", ClientComment(alice.Addr()), nil, []pair{{public, other}, {alice, vpn}}, ">", 1},
		{"both ends are the client", ClientComment(alice.Addr()), nil, []pair{{alice, netip.AddrPortFrom(alice.Addr(), 53)}}, ">", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Read(bytes.NewReader(exchange(t, c.comment, c.pairs...)), Options{Clients: c.given})
			if err != nil {
				t.Fatal(err)
			}
			var ways strings.Builder
			for _, p := range got.Packets {
				ways.WriteByte("<>"[map[bool]int{true: 1}[p.Out]])
			}
			if ways.String() != c.want || got.Foreign != c.foreign {
				t.Errorf("%s, %d foreign, client %v by %s", ways.String(), got.Foreign, got.Clients, got.How)
			}
		})
	}
}

func TestStrictLeavesOutTheOthersOfAGuess(t *testing.T) {
	file := exchange(t, "", [2]netip.AddrPort{alice, vpn}, [2]netip.AddrPort{alice, vpn}, [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.9:4000"), vpn})
	for _, strict := range []bool{false, true} {
		got, err := Read(bytes.NewReader(file), Options{Strict: strict})
		if err != nil || got.How != "guessed" || (len(got.Packets) == 2) != strict || (got.Foreign == 1) != strict {
			t.Errorf("strict %v: %v, %d packets of %v, %d foreign", strict, err, len(got.Packets), got.Clients, got.Foreign)
		}
	}
}

func TestTapNeedsNoFlag(t *testing.T) {
	dir := t.TempDir()
	tap, err := NewFileTap(dir, "home", "")
	if err != nil {
		t.Fatal(err)
	}
	tap.Datagram(epoch.Add(time.Second), true, alice, vpn, hello) // recorded before what came in earlier
	tap.Datagram(epoch, false, alice, vpn, hello)
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Load("x", dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := s.Observers[0]
	if o.Name != "home" || len(o.Packets) != 2 || o.Packets[0].Out || !o.Packets[1].Out || o.Flows[0].Client != alice || o.How != "capture" {
		t.Errorf("%+v", o)
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	whole := exchange(t, "", [2]netip.AddrPort{alice, vpn}, [2]netip.AddrPort{vpn, alice}, [2]netip.AddrPort{alice, vpn})
	write := func(name string, data []byte) string {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(at)
	}
	for _, c := range []struct {
		name, dir, say string
		is             error
	}{
		{"absent", filepath.Join(dir, "nowhere"), "no such file", fs.ErrNotExist},
		{"empty", write("empty/report.html", nil), "there are none", nil},
		{"not a capture", write("text/notes.pcap", []byte("dear diary")), "notes.pcap", ErrNotACapture},
		{"empty file", write("nothing/a.pcapng", nil), "0 bytes", ErrNotACapture},
		{"packed", write("packed/a.pcap", []byte{0x1f, 0x8b, 8, 0, 0}), "neither", ErrNotACapture},
		{"an unknown link", write("link/a.pcap", append([]byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 20: 147, 23: 0}, make([]byte, 16)...)), "147", ErrLinkType},
		{"a header and no more", write("head/a.pcapng", whole[:20]), "a.pcapng", ErrNotACapture},
	} {
		_, err := Load("x", c.dir, Options{})
		if err == nil || !strings.Contains(err.Error(), c.say) || c.is != nil && !errors.Is(err, c.is) || errhint.Of(err) == "" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	cut, err := Load("x", write("cut/a.pcapng", whole[:len(whole)-10]), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := cut.Report()
	if r.Packets != 2 || !strings.Contains(strings.Join(r.Limits, " "), "cut short after 2 packets") {
		t.Errorf("a file that is cut short: %d packets, %v", r.Packets, r.Limits)
	}
	write("joined/all/a.pcapng", whole)
	joined, err := Load("x", write("joined/all/b.pcap.pcapng", whole), Options{})
	if err != nil || len(joined.Observers) != 2 {
		t.Fatalf("%v %v", joined, err)
	}
	joined, err = Load("x", filepath.Join(dir, "joined"), Options{})
	if err != nil || len(joined.Observers) != 1 || len(joined.Observers[0].Packets) != 6 || len(joined.Observers[0].Flows) != 2 {
		t.Errorf("a directory of one observer: %v %+v", err, joined)
	}
}

func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	plainSession(f, dir)
	seed, err := os.ReadFile(filepath.Join(dir, "home.pcapng"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed[:2000])
	var plain bytes.Buffer
	p := pcapgo.NewWriter(&plain)
	if err := errors.Join(p.WriteFileHeader(65535, LinkEthernet), p.WritePacket(gopacket.CaptureInfo{CaptureLength: 5, Length: 5}, hello)); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		if all, _, err := Conversations(bytes.NewReader(data)); err == nil {
			for _, c := range Connections(all) {
				for _, part := range c.Subflows {
					Runs(append(part.Up, part.Down...))
				}
			}
		}
		c, err := Read(bytes.NewReader(data), Options{})
		if err != nil {
			return
		}
		s := &Session{Label: "x", Observers: []Observer{{Name: "x", Capture: *c}}}
		r := s.Report()
		if r.Packets != len(c.Packets) || r.Packets > 0 && (r.Observers[0].Share != 1 && r.Bytes > 0) {
			t.Errorf("%d packets, share %g", r.Packets, r.Observers[0].Share)
		}
		var sink bytes.Buffer
		if err := errors.Join(WriteText(&sink, r, 0), WriteHTML(&sink, s)); err != nil {
			t.Error(err)
		}
		for _, p := range c.Packets {
			if p.Size <= 0 || p.Flow >= len(c.Flows) {
				t.Errorf("%+v", p)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(uint16(LinkRaw), appendUDP(nil, alice, vpn, hello))
	f.Add(uint16(LinkRaw), appendUDP(nil, netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2"), hello))
	for _, c := range linkHeaders {
		f.Add(uint16(c.link), append(append([]byte(nil), c.header...), appendUDP(nil, alice, vpn, hello)...))
	}
	d := newDecoder()
	f.Fuzz(func(t *testing.T, link uint16, data []byte) {
		p, ok := d.decode(captured{data: data, info: gopacket.CaptureInfo{Length: len(data)}, link: LinkType(link)})
		if ok && (p.size > len(data) || p.payloadSize > p.size || len(p.payload) > len(data)) {
			t.Errorf("%+v of %d bytes", p, len(data))
		}
	})
}

func TestHeadsAndRepetitions(t *testing.T) {
	dir := t.TempDir()
	client, server := netip.MustParseAddrPort("192.0.2.1:40000"), netip.MustParseAddrPort("203.0.113.80:443")
	segments := []struct {
		up       bool
		sequence uint32
		syn      bool
		payload  string
		repeated bool
	}{
		{true, 0xfffffff0, true, "", false},
		{false, 7, true, "", false},
		{true, 0xfffffff1, false, "", false},
		{true, 0xfffffff1, false, "a request across the end", false},
		{true, 0xfffffff1, false, "a request", true},
		{false, 8, false, "an answer", false},
		{true, 9, false, " and more", false},
		{true, 9, false, "", false},
		{true, 9, false, " and more of it", false},
		{false, 8, false, "an answer", true},
	}
	captureFile(t, dir, "a", client.Addr(), func(write func(at time.Duration, ip []byte)) {
		for i, s := range segments {
			from, to := client, server
			if !s.up {
				from, to = to, from
			}
			ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
			tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: s.sequence, SYN: s.syn, ACK: i > 0}
			_ = tcp.SetNetworkLayerForChecksum(ip)
			b := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp, gopacket.Payload(s.payload)); err != nil {
				t.Fatal(err)
			}
			write(time.Duration(i)*time.Millisecond, b.Bytes())
		}
	})
	f, err := os.Open(filepath.Join(dir, "a.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := Read(f, Options{Head: 12})
	if err != nil || len(c.Packets) != len(segments) {
		t.Fatalf("%v, %d packets", err, len(c.Packets))
	}
	for i, s := range segments {
		p := c.Packets[i]
		if p.Out != s.up || p.Repeated != s.repeated || string(p.Head) != s.payload[:min(len(s.payload), 12)] {
			t.Errorf("packet %d: up %v, repeated %v, %q", i, p.Out, p.Repeated, p.Head)
		}
	}
}

// A connection from before the capture is left out if only connections that begin in it are wanted, and datagrams never are.
func TestBegun(t *testing.T) {
	dir := t.TempDir()
	server := netip.MustParseAddrPort("203.0.113.80:443")
	old, young := tcpStream{netip.MustParseAddrPort("192.0.2.1:40000"), server}, tcpStream{netip.MustParseAddrPort("192.0.2.1:40001"), server}
	captureFile(t, dir, "a", old.client.Addr(), func(write func(at time.Duration, ip []byte)) {
		write(0, old.segment(t, false, 900, false, []byte("the last of it")))
		write(1, referenceUDP(t, old.client, server, wireguard(100)))
		write(2, young.segment(t, true, 1, true, nil))
		write(3, old.segment(t, true, 500, false, nil))
		write(4, young.segment(t, false, 7, true, nil))
		write(5, young.segment(t, true, 2, false, []byte("hello")))
	})
	for begun, want := range map[bool][]time.Duration{false: {0, 1, 2, 3, 4, 5}, true: {1, 2, 4, 5}} {
		session, err := Load("", dir, Options{Begun: begun})
		if err != nil {
			t.Fatal(err)
		}
		var got []time.Duration
		for _, p := range session.Observers[0].Packets {
			got = append(got, p.Time.Sub(epoch))
		}
		if !slices.Equal(got, want) {
			t.Errorf("begun %v: packets at %v", begun, got)
		}
	}
}
