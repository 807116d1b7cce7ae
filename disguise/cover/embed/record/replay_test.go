package record

import (
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/disguise/cover/embed"
	"heddle/lab/peer"
	"heddle/observe"
)

// datagram hides CloseWrite, which a socket of datagrams does not have.
type datagram struct{ net.Conn }

// replay plays a trace of the lab's database from its beginning, and writes what an observer sees to a capture.
func replay(t *testing.T, d *embed.Database, at int) (capture string) {
	t.Helper()
	trace := d.Traces[at]
	capture = filepath.Join(t.TempDir(), trace.Name+".pcapng")
	out, err := os.Create(capture)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := observe.NewWriter(out, observe.LinkRaw, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f, err := embed.FactoryOf(d, cover.Options{Datagrams: trace.Datagrams, Args: map[string]string{"trace": trace.Name}})
		if err != nil {
			t.Fatal(err)
		}
		client, parameters, err := f.Client()
		if err != nil {
			t.Fatal(err)
		}
		server, err := f.Server(parameters)
		if err != nil {
			t.Fatal(err)
		}
		a, b := covertest.Pipe()
		ended := make(chan error, 2)
		carry := func(c cover.Cover, conn net.Conn) {
			if trace.Datagrams {
				conn = datagram{conn}
			}
			ended <- c.Carry(t.Context(), conn, randomFeed{})
		}
		go carry(client, a)
		go carry(server, b)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		writePackets(t, w, &trace, a.Writes(), b.Writes())
	})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return capture
}

// randomFeed sends random bytes, as blocks are to an observer.
type randomFeed struct{}

func (randomFeed) Wait(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func (randomFeed) Fill(b []byte) (int, error) { return rand.Read(b) }

func (randomFeed) Take([]byte) error { return nil }

// writePackets writes what both sides wrote as IP packets, with the handshake of TCP.
func writePackets(t *testing.T, w *observe.Writer, trace *embed.Trace, up, down []covertest.Write) {
	t.Helper()
	ends := [2]netip.AddrPort{client, netip.AddrPortFrom(server.Addr(), trace.Port)}
	var next [2]uint32
	packet := func(at time.Time, side int, syn bool, payload []byte) {
		from, to := ends[side], ends[1-side]
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		parts := []gopacket.SerializableLayer{ip}
		if trace.Datagrams {
			udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
			_ = udp.SetNetworkLayerForChecksum(ip)
			parts = append(parts, udp)
		} else {
			ip.Protocol = layers.IPProtocolTCP
			tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: next[side], Ack: next[1-side],
				SYN: syn, ACK: next[1-side] > 0, PSH: len(payload) > 0, Window: 65535}
			_ = tcp.SetNetworkLayerForChecksum(ip)
			parts = append(parts, tcp)
			if next[side] += uint32(len(payload)); syn {
				next[side]++
			}
		}
		b := gopacket.NewSerializeBuffer()
		options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
		if err := gopacket.SerializeLayers(b, options, append(parts, gopacket.Payload(payload))...); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(at, b.Bytes(), len(b.Bytes())); err != nil {
			t.Fatal(err)
		}
	}
	if !trace.Datagrams {
		first := up[0].At.Add(-time.Millisecond)
		packet(first, 0, true, nil)
		packet(first, 1, true, nil)
		packet(first, 0, false, nil)
	}
	for len(up)+len(down) > 0 {
		side, from := 0, &up
		if len(up) == 0 || len(down) > 0 && down[0].At.Before(up[0].At) {
			side, from = 1, &down
		}
		packet((*from)[0].At, side, false, (*from)[0].Data)
		*from = (*from)[1:]
	}
}

// judge runs a program that names protocols, and returns what it printed.
func judge(t *testing.T, program string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(peer.ErrMissing, err)
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// The programs with which observers name protocols name RTP, in each packet.
func TestObserversNameTheRecordedProtocol(t *testing.T) {
	d, err := embed.Lab()
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^\t(\S+) +packets: \d+ +bytes: `)
	for i, trace := range d.Traces {
		if !strings.HasPrefix(trace.Protocol, "RTP,") {
			continue
		}
		t.Run(trace.Name, func(t *testing.T) {
			capture := replay(t, d, i)
			if got := named.FindStringSubmatch(judge(t, "ndpiReader", "-i", capture)); got == nil || got[1] != "RTP" {
				t.Errorf("nDPI says %q", got)
			}
			layers := judge(t, "tshark", "-r", capture, "-T", "fields", "-e", "frame.protocols", "--enable-heuristic", "rtp_udp")
			if frames, as := strings.Count(layers, "raw:ip"), strings.Count(layers, ":rtp"); as != frames || frames == 0 {
				t.Errorf("tshark sees RTP in %d of %d packets", as, frames)
			}
		})
	}
}

// The recorder makes the same trace of a replay as of the recording.
func TestReplayIsRecordedAgain(t *testing.T) {
	d, err := embed.Lab()
	if err != nil {
		t.Fatal(err)
	}
	for i, trace := range d.Traces {
		if trace.Datagrams && !trace.Whole {
			continue // it begins somewhere
		}
		f, err := os.Open(replay(t, d, i))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := observe.Read(f, observe.Options{Head: Head})
		if err != nil {
			t.Fatal(err)
		}
		again, skipped := Traces(c, trace.Name, Options{Least: 8, Most: time.Hour})
		if len(again) != 1 {
			t.Fatalf("%s: skipped %v", trace.Name, skipped)
		}
		got := again[0]
		if len(got.Packets) < len(trace.Packets)*9/10 || got.Protocol != trace.Protocol || got.Port != trace.Port {
			t.Errorf("%s: %d packets of %s, recorded %d of %s", trace.Name, len(got.Packets), got.Protocol, len(trace.Packets), trace.Protocol)
		}
		if !reflect.DeepEqual(got.Up, trace.Up) {
			t.Errorf("%s: %+v, recorded %+v", trace.Name, got.Up, trace.Up)
		}
	}
}
