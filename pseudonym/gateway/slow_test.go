package gateway

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/clienthello"
	"heddle/pseudonym"
)

// takes lets a gateway take a connection whose client sends pieces, one each second, the first after half a second. It returns when the gateway
// closed the connection, and how many bytes it took.
func takes(pieces [][]byte) (after time.Duration, took int, n Counts) {
	g := New(Options{Zone: zone, Router: &routes{}, Log: slog.New(slog.DiscardHandler)})
	near, far := net.Pipe()
	defer near.Close()
	begin, ended := time.Now(), make(chan time.Duration, 1)
	go func() {
		place := g.places.Enter(far)
		g.take(context.Background(), place)
		place.Close()
		ended <- time.Since(begin)
	}()
	time.Sleep(time.Second / 2)
	for _, p := range pieces {
		n, err := near.Write(p)
		if took += n; err != nil {
			break
		}
		time.Sleep(time.Second)
	}
	return <-ended, took, g.Counts()
}

// A client that is silent, or sends its ClientHello too slowly, is dropped.
func TestSlowHello(t *testing.T) {
	var slow [][]byte
	for _, b := range hello(t, zone.Name(pseudonym.NewLabel())) {
		slow = append(slow, []byte{b})
	}
	synctest.Test(t, func(t *testing.T) {
		if after, took, n := takes(slow); after != helloFor || took != int(helloFor/time.Second) || n.Refused != 1 {
			t.Errorf("slow: it took %d bytes, and ended after %v: %+v", took, after, n)
		}
		if after, _, n := takes(slow[:1]); after != helloFor || n.Refused != 1 {
			t.Errorf("one byte: it ended after %v: %+v", after, n)
		}
		if after, _, n := takes(nil); after == 0 || after > helloFor || n.Refused != 1 {
			t.Errorf("silent: it ended after %v: %+v", after, n)
		}
	})
}

// inRecords is a message in records of so many bytes.
func inRecords(message []byte, size int) (all []byte) {
	for part := range slices.Chunk(message, size) {
		all = append(append(all, handshakeRecord, 3, 1, byte(len(part)>>8), byte(len(part))), part...)
	}
	return all
}

// A ClientHello of 64 KiB is refused once its length is known, and one in more bytes than a hello may have when these came.
func TestHugeHello(t *testing.T) {
	const once = 2048 // bytes that a gateway reads at a time
	said := func(size int) []byte {
		return append([]byte{1, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
	}
	for name, c := range map[string]struct {
		text []byte
		most int
	}{
		"records":           {inRecords(said(64<<10), 1<<14), once},
		"one record":        {append([]byte{handshakeRecord, 3, 1, 0xff, 0xff}, said(64<<10)...), once},
		"records of a byte": {inRecords(said(clienthello.Limit), 1), clienthello.Limit + once},
	} {
		synctest.Test(t, func(t *testing.T) {
			if after, took, n := takes([][]byte{c.text}); after >= time.Second || took > c.most || n.Refused != 1 {
				t.Errorf("%s: it took %d bytes, and ended after %v: %+v", name, took, after, n)
			}
		})
	}
}
