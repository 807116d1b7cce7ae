package board

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/board/space"
	"heddle/identity"
)

// BenchmarkNodes has 10,000 nodes register at a board in another process, each with a key and a connection of its own, and
// then renew once. In service each renews every 200 s, so that the board's processor time for a renewal, fifty times a
// second, is what it needs. HEDDLE_TEST_NODES is another number of nodes.
//
//	go test -run - -bench Nodes -benchtime 1x ./board
func BenchmarkNodes(b *testing.B) {
	nodes := 10_000
	if n, err := strconv.Atoi(os.Getenv("HEDDLE_TEST_NODES")); err == nil {
		nodes = n
	}
	for b.Loop() {
		register(b, nodes)
	}
}

func register(b *testing.B, nodes int) {
	dir := b.TempDir()
	reference, process := start(b, dir)
	pid := process.Process.Pid
	keys := make([]identity.Identity, nodes)
	for i := range keys {
		keys[i] = fresh(b)
	}
	ids := make([]space.ID, nodes)
	b.ReportMetric(resident(b, pid), "MB-empty")
	phase := func(name string, do func(ctx context.Context, c *Client, i int) error) {
		begin, before := time.Now(), processor(b, pid)
		each(b, reference, keys, do)
		b.ReportMetric(float64(nodes)/time.Since(begin).Seconds(), name+"/s")
		b.ReportMetric(float64((processor(b, pid)-before).Microseconds())/float64(nodes)/1000, "cpu-ms/"+name)
		b.ReportMetric(resident(b, pid), "MB-after-"+name)
	}
	phase("register", func(ctx context.Context, c *Client, i int) (err error) {
		name := space.String("node-" + strconv.Itoa(i))
		tuple := space.Tuple{space.String("heddle-node"), name, space.Bytes(keys[i].Key().Bytes()),
			space.String(fmt.Sprintf(`["192.0.2.%d:7443","[2001:db8::%x]:7443"]`, i%250, i)), space.String("forward,nat"), space.Int(int64(64500 + i%100))}
		template := space.Template{tuple[0], name, space.Any(), space.Any(), space.Any(), space.Any()}
		ids[i], _, _, err = c.Cas(ctx, template, tuple, Put{Lease: time.Hour})
		return err
	})
	phase("renew", func(ctx context.Context, c *Client, i int) error { return c.Renew(ctx, ids[i], time.Hour) })
	begin := time.Now()
	all, err := client(b, reference, keys[0]).List(b.Context(), space.Template{space.String("heddle-node"), space.Any(), space.Any(), space.Any(), space.Any(), space.Any()})
	if err != nil || len(all) != nodes {
		b.Fatalf("%d of %d are listed, %v", len(all), nodes, err)
	}
	b.ReportMetric(time.Since(begin).Seconds()*1000, "ms/list")
	for _, file := range []string{"board.db", "board.db-wal"} {
		if info, err := os.Stat(filepath.Join(dir, file)); err == nil {
			b.ReportMetric(float64(info.Size())/1e6, "MB-"+file)
		}
	}
}

// each does something for each node, over a connection of its own, some at a time.
func each(b *testing.B, r Reference, keys []identity.Identity, do func(context.Context, *Client, int) error) {
	b.Helper()
	work := make(chan int)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := range work {
				c, err := NewClient(ClientOptions{Reference: r, Identity: keys[i], Timeout: time.Minute})
				if err == nil {
					err = do(b.Context(), c, i)
				}
				if err != nil {
					b.Error(err)
					continue
				}
				_ = c.Close()
			}
		})
	}
	for i := range keys {
		work <- i
	}
	close(work)
	all.Wait()
}

// resident gives the memory of a process, in MB.
func resident(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kilobytes / 1000
}

// processor gives the time that a process has used, in steps of 10 ms.
func processor(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime, proc_pid_stat(5)
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkOut is how long a tuple takes to be on the disk of a board in another process, from one client that has its
// connection, and how many a second a hundred clients put.
func BenchmarkOut(b *testing.B) {
	reference, _ := start(b, b.TempDir())
	put := func(b *testing.B, c *Client) {
		if _, err := c.Out(b.Context(), space.Tuple{space.String("x"), space.Int(1)}, Put{Lease: time.Second}); err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		c := client(b, reference, fresh(b))
		var all []time.Duration
		for b.Loop() {
			begin := time.Now()
			put(b, c)
			all = append(all, time.Since(begin))
		}
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms/median")
		b.ReportMetric(all[len(all)*9/10].Seconds()*1000, "ms/p90")
	})
	b.Run("hundred", func(b *testing.B) {
		clients := make([]*Client, 100)
		for i := range clients {
			clients[i] = client(b, reference, fresh(b))
		}
		var next atomic.Int32
		b.SetParallelism(len(clients) / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			c := clients[int(next.Add(1))%len(clients)]
			for pb.Next() {
				put(b, c)
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tuples/s")
	})
}
