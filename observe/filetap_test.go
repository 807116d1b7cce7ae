package observe

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func TestAppendUDPIsWhatTheReferenceSerialises(t *testing.T) {
	cases := []struct{ name, from, to string }{
		{"v4", "192.0.2.1:1234", "198.51.100.7:51820"},
		{"v6", "[2001:db8::1]:1234", "[2001:db8::2]:51820"},
		{"mapped", "[::ffff:192.0.2.1]:1234", "198.51.100.7:51820"},
	}
	for _, c := range cases {
		for _, size := range []int{0, 1, 2, 3, 1420} {
			from, to := netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to)
			payload := bytes.Repeat([]byte{0xA5, 0x01, 0xff}, size)[:size]
			got := appendUDP([]byte("before"), from, to, payload)[len("before"):]
			if want := referenceUDP(t, from, to, payload); !bytes.Equal(got, want) {
				t.Errorf("%s, %d bytes:\n got %x\nwant %x", c.name, size, got, want)
			}
		}
	}
}

// referenceUDP is the same packet as gopacket's serialiser writes it.
func referenceUDP(t *testing.T, from, to netip.AddrPort, payload []byte) []byte {
	t.Helper()
	src, dst := from.Addr().Unmap(), to.Addr().Unmap()
	var network interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	if src.Is4() {
		network = &layers.IPv4{Version: 4, TTL: hopLimit, Protocol: layers.IPProtocolUDP, Flags: layers.IPv4DontFragment,
			SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	} else {
		network = &layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: layers.IPProtocolUDP,
			SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	if err := udp.SetNetworkLayerForChecksum(network); err != nil {
		t.Fatal(err)
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, network, udp, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func TestAppendUDPSurvivesWhatIsNotKnown(t *testing.T) {
	four, six := netip.MustParseAddrPort("192.0.2.1:9"), netip.MustParseAddrPort("[fe80::1%eth0]:9")
	for _, c := range []struct{ from, to netip.AddrPort }{{netip.AddrPort{}, four}, {four, netip.AddrPort{}}, {six, four},
		{netip.AddrPort{}, six}, {netip.AddrPort{}, netip.AddrPort{}}} {
		if got := appendUDP(nil, c.from, c.to, make([]byte, 70000)); len(got) < 65535 {
			t.Errorf("%v to %v: %d bytes", c.from, c.to, len(got))
		}
	}
}

func TestFileTapKeepsEveryDatagram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "captures")
	tap, err := NewFileTap(dir, "home", "home=if:eth0")
	if err != nil {
		t.Fatal(err)
	}
	local, remote := netip.MustParseAddrPort("192.0.2.1:1234"), netip.MustParseAddrPort("198.51.100.7:51820")
	const each = 2000
	var senders sync.WaitGroup
	for _, out := range []bool{true, false} {
		senders.Go(func() {
			data := make([]byte, 100)
			for i := range each {
				data[0] = byte(i)
				tap.Datagram(time.Unix(1, int64(i)), out, local, remote, data)
			}
		})
	}
	senders.Wait()
	dropped := droppedBy(tap)
	if err := tap.Close(); err != nil && dropped == 0 {
		t.Fatal(err)
	}
	tap.Datagram(time.Unix(2, 0), true, local, remote, []byte("too late"))
	info, err := os.Stat(filepath.Join(dir, "home.pcapng"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	file, err := os.Open(filepath.Join(dir, "home.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var statistics pcapgo.NgInterfaceStatistics
	reader, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{
		StatisticsCallback: func(_ int, s pcapgo.NgInterfaceStatistics) { statistics = s }})
	if err != nil {
		t.Fatal(err)
	}
	count := map[pcapgo.NgEpbFlag]uint64{}
	next := map[pcapgo.NgEpbFlag]int64{}
	for {
		_, ci, options, err := reader.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		direction := options.Flags.Direction
		count[direction]++
		if got := ci.Timestamp.UnixNano() - 1e9; got < next[direction] {
			t.Fatalf("direction %d: datagram %d after %d", direction, got, next[direction])
		} else {
			next[direction] = got + 1
		}
	}
	if total := count[1] + count[2] + dropped; total != 2*each {
		t.Errorf("%d datagrams and %d drops, want %d together", count[1]+count[2], dropped, 2*each)
	}
	if statistics.PacketsDropped != dropped || statistics.PacketsReceived != 2*each {
		t.Errorf("statistics say %d dropped of %d", statistics.PacketsDropped, statistics.PacketsReceived)
	}
	iface, _ := reader.Interface(0)
	if iface.Name != "home" || iface.Description != "home=if:eth0" || iface.LinkType != LinkRaw {
		t.Errorf("interface %+v", iface)
	}
}

func TestFileTapIsBoundedAndSaysWhatItDropped(t *testing.T) {
	tap := &FileTap{some: make(chan struct{}, 1), many: make(chan struct{}, 1)} // no writer: a disk that never answers
	data := make([]byte, 60000)
	for range 1000 {
		tap.Datagram(time.Time{}, true, netip.AddrPort{}, netip.AddrPort{}, data)
	}
	kept := uint64(len(tap.filling.records))
	if len(tap.filling.arena) > tapBytes || kept == 0 || kept+droppedBy(tap) != 1000 {
		t.Errorf("kept %d datagrams in %d bytes, dropped %d", kept, len(tap.filling.arena), droppedBy(tap))
	}
}

func TestFileTapNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "home.pcapng")
	if err := os.WriteFile(name, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := NewFileTap(dir, "home", "")
	if !errors.Is(err, fs.ErrExist) {
		t.Fatalf("got %v", err)
	}
	if kept, _ := os.ReadFile(name); string(kept) != "precious" {
		t.Errorf("the file holds %q", kept)
	}
	for _, bad := range []string{"../home", "a/b", ".."} {
		if tap, err := NewFileTap(dir, bad, ""); err == nil {
			tap.Close()
			t.Errorf("a path called %q was given a file", bad)
		}
	}
}

func BenchmarkFileTapDatagram(b *testing.B) {
	tap, err := NewFileTap(b.TempDir(), "home", "")
	if err != nil {
		b.Fatal(err)
	}
	local, remote := netip.MustParseAddrPort("192.0.2.1:1234"), netip.MustParseAddrPort("198.51.100.7:51820")
	data := make([]byte, 1400)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		tap.Datagram(time.Time{}, true, local, remote, data)
	}
	b.ReportMetric(float64(droppedBy(tap))/float64(b.N), "dropped/op")
	tap.Close()
}

// droppedBy is how many datagrams a capture missed so far.
func droppedBy(t *FileTap) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped
}
