package labtest

import (
	"errors"
	"io"
	"iter"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
)

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
