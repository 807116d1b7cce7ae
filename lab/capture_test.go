package lab

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"heddle/observe"
)

// TestCaptureCountsExactly sends bursts that the kernel keeps as super-packets on veth, and wants each datagram in
// the file.
func TestCaptureCountsExactly(t *testing.T) {
	for _, emulated := range []bool{false, true} {
		w := Pair()
		w.Client = "a"
		w.Links[0] = w.Links[0].Both(Shape{})
		if emulated {
			w.Links[0] = w.Links[0].Both(Shape{Delay: ms})
		}
		in := needWorld(t, w)
		out, at := sockets(t, in.Host("a"), in.Host("b"), "10.0.0.2:9")
		file := filepath.Join(t.TempDir(), "b.pcapng")
		capture, err := in.Capture(t.Context(), "b", "link", file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Capture(t.Context(), "b", "link", file); err == nil {
			t.Error("a capture was overwritten")
		}
		const bursts, perBurst, size = 50, 8, 1000
		enableSegmentation(t, out, size)
		for range bursts {
			if _, err := out.Write(make([]byte, perBurst*size)); err != nil {
				t.Fatal(err)
			}
		}
		buffer := make([]byte, 2000)
		for range bursts * perBurst {
			if _, err := at.Read(buffer); err != nil {
				t.Fatal(err)
			}
		}
		count, err := capture.Stop()
		if err != nil {
			t.Fatal(err)
		}
		again, err := capture.Stop()
		if err != nil || again != count {
			t.Errorf("stopped again: %+v, %v", again, err)
		}
		checkCapture(t, file, bursts*perBurst, size)
	}
}

// A capture that gets no processor until it is told to stop has what came before that.
func TestCaptureStopsLate(t *testing.T) {
	w := Pair()
	w.Links[0] = w.Links[0].Both(Shape{})
	in := needWorld(t, w)
	out, at := sockets(t, in.Host("a"), in.Host("b"), "10.0.0.2:9")
	var busy atomic.Bool
	busy.Store(true)
	defer busy.Store(false)
	for range 4 * runtime.GOMAXPROCS(0) {
		go func() {
			for busy.Load() {
				runtime.Gosched()
			}
		}()
	}
	dir := t.TempDir()
	for i := range 200 {
		capture, err := in.Capture(t.Context(), "b", "link", filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("seen")); err != nil {
			t.Fatal(err)
		}
		if _, err := at.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if count, err := capture.Stop(); err != nil || count.Packets == 0 {
			t.Fatalf("capture %d: %+v, %v", i, count, err)
		}
	}
}

// checkCapture reads the file with a reader that is not ours.
func checkCapture(t *testing.T, file string, want, size int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reader, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	iface, err := reader.Interface(0)
	if err != nil || iface.Name != "link" || !strings.Contains(iface.Comment, "client=10.0.0.1") || !strings.Contains(iface.Comment, "host b") {
		t.Errorf("interface %q, comment %q, %v", iface.Name, iface.Comment, err)
	}
	got := 0
	var last time.Time
	for {
		data, info, err := reader.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		udp, ok := gopacket.NewPacket(data, linkLayer(reader.LinkType()), gopacket.Default).TransportLayer().(*layers.UDP)
		if !ok || udp.DstPort != 9 {
			continue // the kernel's own neighbour discovery
		}
		got++
		if len(udp.Payload) != size || info.Timestamp.Before(last) {
			t.Errorf("%d bytes at %v after %v, want %d", len(udp.Payload), info.Timestamp, last, size)
		}
		last = info.Timestamp
	}
	if got != want {
		t.Errorf("%d datagrams in the file, want %d", got, want)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func linkLayer(link layers.LinkType) gopacket.Decoder {
	if link == observe.LinkRaw {
		return layers.LayerTypeIPv4
	}
	return link
}

// enableSegmentation makes the kernel cut each write into datagrams of size bytes, as late as it can.
func enableSegmentation(t *testing.T, c *net.UDPConn, size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var optErr error
	err = raw.Control(func(fd uintptr) { optErr = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) })
	if err := errors.Join(err, optErr); err != nil {
		t.Fatal(err)
	}
}

func TestCaptureRefuses(t *testing.T) {
	in := needWorld(t, Pair())
	for _, c := range [][3]string{{"nobody", "link", "x"}, {"a", "eth7", "x"}, {"a", "link", "no/such/directory"}} {
		if _, err := in.Capture(t.Context(), c[0], c[1], filepath.Join(t.TempDir(), c[2])); err == nil {
			t.Errorf("%v is taken", c)
		}
	}
}

func TestCaptureOutlivesItsDevice(t *testing.T) {
	in := needWorld(t, Pair())
	file := filepath.Join(t.TempDir(), "a.pcapng")
	capture, err := in.Capture(t.Context(), "a", "link", file)
	if err != nil {
		t.Fatal(err)
	}
	link := in.Link("link")
	if err := errors.Join(link.Unplug(), link.Restore()); err != nil {
		t.Fatal(err)
	}
	run(t, in.Host("a"), "ping", "-c", "3", "-i", "0.01", "-W", "60", "10.0.0.2")
	if count, err := capture.Stop(); err != nil || count.Packets < 6 {
		t.Errorf("%+v, %v: want the 6 packets of three pings", count, err)
	}
}
