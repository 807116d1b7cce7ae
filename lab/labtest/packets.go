package labtest

import (
	"errors"
	"io"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"heddle/lab"
	"heddle/observe"
)

// Capture is [lab.Instance.CaptureAll]. The test fails if a capture missed packets.
func Capture(t *testing.T, in *lab.Instance, dir string, places map[string]string) (stop func()) {
	t.Helper()
	end, err := in.CaptureAll(t.Context(), dir, places)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// File is the file name of a capture.
func File(dir, name string) string { return filepath.Join(dir, name+".pcapng") }

// Read reads a capture of these clients, or of those that it names itself.
func Read(t *testing.T, file string, clients []netip.Addr) *observe.Capture {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var options observe.Options
	for _, a := range clients {
		options.Clients = append(options.Clients, netip.PrefixFrom(a, a.BitLen()))
	}
	c, err := observe.Read(f, options)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return c
}

// Watch captures at places, named HOST/DEVICE, until stop, which returns the [Packets] of each.
func Watch(t *testing.T, in *lab.Instance, places ...string) (stop func() map[string]iter.Seq2[time.Time, gopacket.Packet]) {
	t.Helper()
	dir, named := t.TempDir(), map[string]string{}
	for _, place := range places {
		named[strings.ReplaceAll(place, "/", "-")] = place
	}
	end := Capture(t, in, dir, named)
	return func() map[string]iter.Seq2[time.Time, gopacket.Packet] {
		t.Helper()
		end()
		seen := map[string]iter.Seq2[time.Time, gopacket.Packet]{}
		for name, place := range named {
			seen[place] = Packets(t, File(dir, name))
		}
		return seen
	}
}

// Packets returns the decoded packets of a capture with their times. A packet is valid until the next. The test fails
// if the file is incomplete.
func Packets(t *testing.T, file string) iter.Seq2[time.Time, gopacket.Packet] {
	t.Helper()
	return func(yield func(time.Time, gopacket.Packet) bool) {
		t.Helper()
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for {
			data, info, err := r.ReadPacketData()
			if errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if !yield(info.Timestamp, gopacket.NewPacket(data, r.LinkType(), gopacket.NoCopy)) {
				return
			}
		}
	}
}
