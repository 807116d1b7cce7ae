package labtest

import (
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"heddle/lab"
)

// Watch captures at places, each HOST/DEVICE, until stop, which gives what [Packets] does for each. The test fails where
// a capture missed anything.
func Watch(t *testing.T, in *lab.Instance, places ...string) (stop func() map[string]iter.Seq2[time.Time, gopacket.Packet]) {
	t.Helper()
	dir := t.TempDir()
	running := map[string]*lab.Capture{}
	file := func(place string) string { return filepath.Join(dir, strings.ReplaceAll(place, "/", "-")+".pcapng") }
	for _, place := range places {
		host, device, _ := strings.Cut(place, "/")
		c, err := in.Capture(t.Context(), host, device, file(place))
		if err != nil {
			t.Fatal(err)
		}
		running[place] = c
	}
	return func() map[string]iter.Seq2[time.Time, gopacket.Packet] {
		t.Helper()
		seen := map[string]iter.Seq2[time.Time, gopacket.Packet]{}
		for place, c := range running {
			if n, err := c.Stop(); err != nil || n.Dropped > 0 {
				t.Errorf("capture at %s: %+v, %v", place, n, err)
			}
			seen[place] = Packets(t, file(place))
		}
		return seen
	}
}

// Packets gives the packets of a capture, decoded, and when each was seen. A packet is valid until the next. The test
// fails where the file is no whole capture.
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
