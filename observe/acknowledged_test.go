package observe

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// talk is a TCP segment between alice and the web server.
type talk struct {
	at            time.Duration
	up            bool
	sequence, ack uint32 // without ACK if ack is 0
	syn           bool
	bytes         int
	want          int32 // ack_us
}

const ms = time.Millisecond

func TestTraceTellsWhenTCPAcknowledges(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []talk
	}{
		{"a handshake, a request and its answer", []talk{
			{0, true, 100, 0, true, 0, 20_000},
			{20 * ms, false, 900, 101, true, 0, 5_000},
			{25 * ms, true, 101, 901, false, 0, -1},
			{26 * ms, true, 101, 901, false, 50, 20_000},
			{46 * ms, false, 901, 151, false, 0, -1},
			{90 * ms, false, 901, 151, false, 1000, 3_000},
			{93 * ms, true, 151, 1901, false, 0, -1},
		}},
		{"an answer that acknowledges, and a part that it does not", []talk{
			{0, true, 10, 5, false, 100, 40_000},
			{1 * ms, true, 110, 5, false, 100, 49_000},
			{30 * ms, false, 5, 109, false, 0, -1},
			{40 * ms, false, 5, 110, false, 700, -1},
			{50 * ms, false, 705, 210, false, 0, -1},
		}},
		{"one acknowledgement of several, across the end of the numbers", []talk{
			{0, true, 0xffffffc0, 1, false, 50, 30_000},
			{1 * ms, true, 0xfffffff2, 1, false, 50, 29_000},
			{30 * ms, false, 1, 36, false, 0, -1},
		}},
		{"a repetition", []talk{
			{0, true, 10, 5, false, 100, 60_000},
			{50 * ms, true, 10, 5, false, 100, -1},
			{60 * ms, false, 5, 110, false, 0, -1},
		}},
		{"the same ports again", []talk{
			{0, true, 5000, 0, true, 0, -1},
			{1 * ms, true, 10, 0, true, 0, 9_000},
			{10 * ms, false, 70, 11, true, 0, -1},
		}},
		{"an acknowledgement that came before, by its clock", []talk{
			{1 * ms, true, 10, 5, false, 100, 0},
			{0, false, 5, 110, false, 0, -1},
		}},
		{"nobody acknowledges", []talk{{0, true, 10, 5, false, 100, -1}, {1 * ms, false, 5, 10, false, 100, -1}}},
	} {
		dir := t.TempDir()
		captureFile(t, dir, "a", alice.Addr(), func(write func(time.Duration, []byte)) {
			for _, s := range c.all {
				write(s.at, s.packet(t))
			}
		})
		row := rowsOf(t, dir, Options{})[0]
		var want []int32
		for _, s := range slices.SortedStableFunc(slices.Values(c.all), func(a, b talk) int { return int(a.at - b.at) }) {
			want = append(want, s.want)
		}
		if !slices.Equal(row.Acknowledged, want) {
			t.Errorf("%s: %d, want %d", c.name, row.Acknowledged, want)
		}
	}
}

// A number without the flag ACK says nothing.
func TestNumberWithoutACK(t *testing.T) {
	dir := t.TempDir()
	captureFile(t, dir, "a", alice.Addr(), func(write func(time.Duration, []byte)) {
		write(0, talk{up: true, sequence: 10, ack: 5, bytes: 100}.packet(t))
		bare := talk{sequence: 5, ack: 110}.packet(t)
		bare[20+13] &^= 16
		write(ms, bare)
	})
	if got := rowsOf(t, dir, Options{})[0].Acknowledged; !slices.Equal(got, []int32{-1, -1}) {
		t.Errorf("%d", got)
	}
}

func TestDatagramsAreNotAcknowledged(t *testing.T) {
	dir := t.TempDir()
	splitSession(t, dir, 1, 0.3)
	for _, row := range rowsOf(t, dir, Options{}) {
		if len(row.Acknowledged) != len(row.Size) || slices.ContainsFunc(row.Acknowledged, func(us int32) bool { return us != -1 }) {
			t.Errorf("%d of %d packets: %d", len(row.Acknowledged), len(row.Size), row.Acknowledged)
		}
	}
}

func TestNoAcknowledgementAfterTheLongestTrace(t *testing.T) {
	for d, want := range map[time.Duration]int32{0: -1, 1: 0, time.Millisecond: 1000, 35 * time.Minute: 2_100_000_000, 36 * time.Minute: -1} {
		if got := acknowledgedAfter(d); got != want {
			t.Errorf("%v: %d", d, got)
		}
	}
}

func (s talk) packet(t *testing.T) []byte {
	t.Helper()
	from, to := alice, netip.AddrPortFrom(webServer, 443)
	if !s.up {
		from, to = to, from
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: s.sequence, Ack: s.ack, ACK: s.ack > 0, SYN: s.syn}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp, gopacket.Payload(make([]byte, s.bytes))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
