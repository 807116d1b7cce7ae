package embed

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
)

// timed notes when each packet leaves.
type timed struct {
	net.Conn
	mu sync.Mutex
	at []time.Time
}

func (c *timed) Write(b []byte) (int, error) {
	now := time.Now()
	c.mu.Lock()
	c.at = append(c.at, now)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// BenchmarkLateness plays a call over sockets in real time, with data in both directions, and reports how far from its recorded
// time each packet leaves: `go test -bench Lateness -benchtime 1x ./disguise/cover/embed`.
func BenchmarkLateness(b *testing.B) {
	trace := call(500)
	trace.Whole = true
	d := databaseOf(b, trace)
	f, err := FactoryOf(d, cover.Options{Datagrams: true})
	if err != nil {
		b.Fatal(err)
	}
	var late []time.Duration
	for b.Loop() {
		ends := sockets(b)
		client, parameters, err := f.Client()
		if err != nil {
			b.Fatal(err)
		}
		server, err := f.Server(parameters)
		if err != nil {
			b.Fatal(err)
		}
		var work sync.WaitGroup
		for i, c := range []cover.Cover{client, server} {
			feed := &covertest.Feed{Datagrams: true}
			feed.Send(make([]byte, 100_000))
			work.Go(func() {
				if err := c.Carry(context.Background(), ends[i], feed); err != nil {
					b.Error(err)
				}
			})
		}
		work.Wait()
		for i, end := range ends {
			late = append(late, lateness(&trace, i == 1, end.at)...)
		}
	}
	slices.Sort(late)
	for name, share := range map[string]float64{"p50-us": 0.5, "p99-us": 0.99, "max-us": 1} {
		b.ReportMetric(float64(late[int(share*float64(len(late)-1))].Microseconds()), name)
	}
	b.ReportMetric(0, "ns/op")
}

// lateness compares the times with those recorded, relative to the earliest packet of the side.
func lateness(t *Trace, down bool, at []time.Time) (all []time.Duration) {
	i := 0
	for _, p := range t.Packets {
		if p.Down == down && i < len(at) {
			all = append(all, at[i].Sub(at[0])-p.At)
			i++
		}
	}
	least := slices.Min(all)
	for i := range all {
		all[i] -= least
	}
	return all
}

// sockets returns two connected sockets of datagrams.
func sockets(b *testing.B) (ends [2]*timed) {
	b.Helper()
	first, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	at := first.LocalAddr().(*net.UDPAddr)
	first.Close()
	second, err := net.DialUDP("udp4", nil, at)
	if err != nil {
		b.Fatal(err)
	}
	back, err := net.DialUDP("udp4", at, second.LocalAddr().(*net.UDPAddr))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { second.Close(); back.Close() })
	return [2]*timed{{Conn: second}, {Conn: back}}
}
