package link

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/handshake"
)

func TestStreamsOverOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.seen = map[uint64]struct{}{}
		l, _, _ := w.open(line{delay: 40 * time.Millisecond})
		exchange(t, l, w.other(), content(300_000, 1), content(1_000_000, 2))
		w.finish()
		for _, s := range []Stats{l.Stats(), w.bridge.Stats()} {
			if !s.PostQuantum || s.Retransmitted != 0 || s.Again != 0 {
				t.Error(describe(s))
			}
		}
		if len(w.errs) > 0 {
			t.Error(w.errs)
		}
	})
}

// churn lets connections of random shape join and leave until the link ends.
func churn(w *world, rng *rand.Rand, first func(error)) {
	l := w.client
	shape := func() line {
		with := line{delay: time.Duration(rng.IntN(80)) * time.Millisecond}
		switch most := []int{0, 100, 1500, 70_000}[rng.IntN(4)]; most {
		case 0:
		default:
			sizes := rand.New(rand.NewPCG(rng.Uint64(), 1))
			var mu sync.Mutex
			with.size = func(waiting int) int {
				mu.Lock()
				defer mu.Unlock()
				return block.Overhead + sizes.IntN(most)
			}
		}
		if rng.IntN(3) == 0 { // somebody changes bytes
			count := 1 + rng.IntN(20)
			with.tamper = func(b []byte) []byte {
				w.mu.Lock()
				defer w.mu.Unlock()
				if count--; count == 0 {
					b[w.rng.IntN(len(b))] ^= 1 << w.rng.IntN(8)
				}
				return b
			}
		}
		if rng.IntN(4) == 0 {
			with.every = time.Duration(1+rng.IntN(20)) * time.Millisecond
		}
		return with
	}
	ends := []func(error){first}
	for {
		select {
		case <-l.Done():
			return
		case <-l.Starved():
		case <-time.After(time.Duration(rng.IntN(150)) * time.Millisecond):
		}
		if !l.Stats().Open {
			continue
		}
		if n := len(ends); n > 0 && rng.IntN(2) == 0 {
			k := rng.IntN(n)
			ends[k]([]error{nil, io.ErrUnexpectedEOF}[rng.IntN(2)])
			ends = slices.Delete(ends, k, k+1)
		}
		if len(ends) < 5 {
			if c, err := l.Join([]byte{1}, false); err == nil {
				ends = append(ends, w.run(c, shape()))
			}
		}
	}
}

func TestAnyLossOfConnections(t *testing.T) {
	epochs := uint64(0)
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				o := Options{}
				if seed%2 == 1 {
					o.RekeyBytes = 50_000
				}
				w := newWorld(t, o)
				w.seen = map[uint64]struct{}{}
				l, _, end := w.open(line{delay: 20 * time.Millisecond})
				up, down := content(100_000+rng.IntN(200_000), 1), content(100_000+rng.IntN(500_000), 2)
				var group sync.WaitGroup
				group.Go(func() { churn(w, rng, end) })
				exchange(t, l, w.other(), up, down)
				w.finish()
				group.Wait()
				for _, err := range w.errs { // because of changed bytes
					if !errors.Is(err, net.ErrClosed) && !errors.Is(err, block.ErrForged) && !errors.Is(err, errHeader) && !errors.Is(err, handshake.ErrStranger) {
						t.Error(err)
					}
				}
				epochs = max(epochs, l.Stats().Epoch)
			})
		})
	}
	if epochs < 2 {
		t.Errorf("no link had more than %d epochs", epochs)
	}
}
