package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/netutil"
	"heddle/lab/peer"
	"heddle/path"
)

const (
	linkBytes  = 100_000     // zeros that each link carries
	linkUsers  = 4           // links at a time
	linkPause  = time.Second // between two links of a user, see soakPause
	linkBatch  = 250         // links of one capture
	firstBytes = 1000        // of each direction of a connection
)

// randomTests are tests of dieharder, by its numbers, with the bytes that one of their samples takes.
var randomTests = []struct {
	number int
	sample int // bytes
}{{100, 400_000}, {101, 400_000}, {102, 400_000}, {15, 400_000}, {0, 1_100_000}, {9, 5_200_000}, {3, 2_400_000}}

// With few samples, dieharder calls too many p-values weak or failed, those of /dev/urandom too. So a stream is compared with several
// controls of the same length. There are fewer for streams beyond shortStream bytes, whose tests take a minute.
const (
	shortStream   = 100_000_000
	shortControls = 20
	longControls  = 3
)

const (
	// mostSamples bounds the samples of one test. More take longer, and find smaller faults.
	mostSamples = 100
	mostValues  = 1000 // more than one test has
)

// Randomness records what links of the cover random send. It has dieharder test the first bytes of all connections and directions,
// and the streams of each direction, beside as many bytes of /dev/urandom. It fails with [peer.ErrMissing] without dieharder.
func Randomness(ctx context.Context, o BridgeOptions) (Report, error) {
	if _, err := exec.LookPath("dieharder"); err != nil {
		return Report{}, &path.Error{What: "dieharder", Hint: "apt-get install dieharder", Err: peer.ErrMissing}
	}
	b, err := upBridged(ctx, "randomness", o)
	if err != nil {
		return Report{}, err
	}
	err = b.randomness(ctx)
	return b.Report(), errors.Join(err, b.Down())
}

func (b *bridged) randomness(ctx context.Context) error {
	server, file, err := b.bridge(ctx, bridgePort)
	if err != nil {
		return err
	}
	client, err := b.dial(ctx, file)
	if err != nil {
		return err
	}
	var first, up, down bytes.Buffer
	for done := 0; done < b.Links; done += linkBatch {
		capture := filepath.Join(b.Host("user").Dir(), fmt.Sprint("links-", done, ".pcapng"))
		if err := b.record(ctx, capture, min(linkBatch, b.Links-done)); err != nil {
			return errors.Join(err, logs(client, server))
		}
		all, err := conversations(capture)
		if err != nil {
			return err
		}
		for _, c := range all {
			for _, stream := range [][]byte{c.Up, c.Down} {
				first.Write(stream[:min(len(stream), firstBytes)])
			}
			up.Write(c.Up)
			down.Write(c.Down)
		}
		b.say("%d links: %d bytes up, %d down", min(done+linkBatch, b.Links), up.Len(), down.Len())
		if err := os.Remove(capture); err != nil {
			return err
		}
	}
	for _, stream := range []struct {
		name string
		data []byte
	}{{"first", first.Bytes()}, {"up", up.Bytes()}, {"down", down.Bytes()}} {
		if err := b.test(ctx, stream.name, stream.data, 0); err != nil {
			return err
		}
		controls := shortControls
		if len(stream.data) > shortStream {
			controls = longControls
		}
		for i := range controls {
			_, _ = rand.Read(stream.data) // it never fails
			if err := b.test(ctx, stream.name+"-urandom", stream.data, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// record captures links, each of which downloads something.
func (b *bridged) record(ctx context.Context, file string, links int) error {
	capture, err := b.Capture(ctx, "user", "net", file)
	if err != nil {
		return err
	}
	going, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var left atomic.Int64
	left.Store(int64(links))
	var work sync.WaitGroup
	for range linkUsers {
		work.Go(func() {
			for going.Err() == nil && left.Add(-1) >= 0 {
				if _, err := b.download(going, linkBytes); err != nil {
					stop(err)
				}
				_ = netutil.Sleep(going, linkPause)
			}
		})
	}
	work.Wait()
	_, err = capture.Stop()
	return errors.Join(context.Cause(going), err)
}

// test adds the p-values of all tests for which the data suffices, and how many of them dieharder calls weak or failed.
func (b *bridged) test(ctx context.Context, name string, data []byte, control int) error {
	file := filepath.Join(b.Host("user").Dir(), name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	b.Add(Figure{Case: name + "/bytes", Metric: "bytes", Unit: "B", Group: name}, control, float64(len(data)))
	weak, failed := 0, 0
	for _, test := range randomTests {
		samples := min(len(data)/test.sample, mostSamples)
		if samples < 2 {
			continue
		}
		cmd := exec.CommandContext(ctx, "dieharder", "-g", "201", "-f", file, "-d", fmt.Sprint(test.number), "-p", fmt.Sprint(samples),
			"-D", "test_name", "-D", "pvalues", "-D", "assessment", "-c", "|")
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("dieharder: %w: %s", err, out)
		}
		found := 0
		for line := range strings.Lines(string(out)) {
			columns := strings.Split(strings.TrimSpace(line), "|")
			if len(columns) != 3 {
				continue
			}
			p, err := strconv.ParseFloat(strings.TrimSpace(columns[1]), 64)
			if err != nil {
				return fmt.Errorf("dieharder: %q", line)
			}
			b.Add(Figure{Case: name + "/" + strings.TrimSpace(columns[0]), Metric: "p", Group: name}, control*mostValues+found, p)
			found++
			switch strings.TrimSpace(columns[2]) {
			case "WEAK":
				weak++
			case "FAILED":
				failed++
			}
		}
		if found == 0 {
			return fmt.Errorf("dieharder has no p-value: %s", out)
		}
	}
	b.Add(Figure{Case: name + "/weak", Metric: "p-values", Group: name}, control, float64(weak))
	b.Add(Figure{Case: name + "/failed", Metric: "p-values", Group: name}, control, float64(failed))
	b.say("%s: %d weak, %d failed", name, weak, failed)
	return os.Remove(file)
}
