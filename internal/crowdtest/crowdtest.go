// Package crowdtest tests whether a user gets into a listener on loopback beside a crowd of strangers. Only tests import it.
package crowdtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/filelock"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
)

const (
	strangers = 2000
	sources   = 64
	attempts  = 100
	mayFail   = 1
	soon      = time.Second // for the measurement
	// again is how long a stranger waits before it connects again: 2,000 connections a second. More would take all processors,
	// also from the other tests.
	again = time.Second
)

// Siege has strangers from 64 sources hold 2,000 connections, or connect again whenever they are closed. Half of the sources are
// in the user's network. Meanwhile the user connects 100 times, every second time from a new address, in the
// strangers' network or in another one. At least 99 attempts must succeed. Their times depend on the machine, so only a
// benchmark counts those that succeed within a second.
func Siege(t testing.TB, at net.Addr, d net.Dialer, user func(from netip.Addr) error) {
	t.Helper()
	defer alone(t)()
	var crowd sync.WaitGroup
	defer crowd.Wait()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var came atomic.Int64
	for i := range strangers {
		crowd.Go(func() {
			for ctx.Err() == nil {
				stand(ctx, d, at, i, &came)
				_ = netutil.Sleep(ctx, again)
			}
		})
	}
	// The listener has fewer places than there are strangers, so those it closes come again and fill every gap.
	polltest.Await(t, "the crowd comes again", func() bool { return came.Load() >= 2*strangers })
	var took []time.Duration
	for i := range attempts {
		from := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		switch i % 4 {
		case 1:
			from = netip.AddrFrom4([4]byte{127, 0, 0, 100 + byte(i)})
		case 3:
			from = netip.AddrFrom4([4]byte{127, 2, byte(i), 1})
		}
		begin := time.Now()
		if err := user(from); err != nil {
			if t.Logf("attempt %d from %v: %v", i, from, err); i-len(took) >= mayFail {
				t.Fatalf("%d of %d attempts of a user got in", len(took), i+1)
			}
			continue
		}
		took = append(took, time.Since(begin))
	}
	report(t, took)
	t.Logf("strangers connected %d times", came.Load())
}

// alone waits until no other process has a siege, until end. Two at once take the processors from the users of each other, whose attempts last longer,
// and so the sieges: four took eight times as long as one.
func alone(t testing.TB) (end func()) {
	t.Helper()
	lock, err := filelock.Lock(filepath.Join(os.TempDir(), fmt.Sprintf("heddle-siege-%d.lock", os.Getuid())))
	if err != nil {
		t.Fatal(err)
	}
	return func() { lock.Close() }
}

// report says how long the attempts took that succeeded.
func report(t testing.TB, took []time.Duration) {
	slices.Sort(took)
	n := len(took)
	inTime, _ := slices.BinarySearch(took, soon+1)
	median, most := took[n/2], took[n-1]
	b, ok := t.(*testing.B)
	if !ok {
		t.Logf("%d of %d attempts got in, %d within %v, in %v (median) to %v", n, attempts, inTime, soon, median, most)
		return
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(inTime), "in-1s/100")
	b.ReportMetric(float64(median.Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(most.Microseconds())/1000, "max-ms")
}

// stand holds one stranger's connection until it is closed. Half of the connections send a part of a TLS record.
func stand(ctx context.Context, d net.Dialer, at net.Addr, i int, came *atomic.Int64) {
	source := byte(i % sources)
	from := net.IPv4(127, 0, 0, 2+source)
	if source%2 == 1 {
		from = net.IPv4(127, 1, source, 1)
	}
	d.LocalAddr = &net.TCPAddr{IP: from}
	c, err := d.DialContext(ctx, at.Network(), at.String())
	if err != nil {
		return
	}
	defer netutil.Reset(c)
	defer context.AfterFunc(ctx, func() { netutil.Reset(c) })()
	came.Add(1)
	if i/sources%2 == 1 {
		_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1}) // of a TLS record of 512 bytes
	}
	_, _ = io.Copy(io.Discard, c)
}
