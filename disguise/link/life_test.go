package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/block"
	"heddle/internal/reliable"
)

// A download of the paper's size over the paper's line sends little upstream.
func TestAcksAreSparse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, _ := w.open(line{delay: 40 * time.Millisecond, rate: 700_000, size: func(waiting int) int { return min(waiting, 1400) }})
		go func() {
			_, _ = w.other().Write(content(1_000_000, 1))
			_ = w.other().CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, l); n != 1_000_000 || err != nil {
			t.Fatal(n, err)
		}
		rekey := uint64(rkiSize + rekeyHead)
		if s := l.Stats(); s.WireOut > rekey+500+20*80+2000 {
			t.Errorf("%d bytes went up: %s", s.WireOut, describe(s))
		}
		if s := w.bridge.Stats(); s.WireOut > 1_000_000*1400/(1400-dataOverhead)+10_000 {
			t.Errorf("%d bytes went down: %s", s.WireOut, describe(s))
		}
		_ = l.CloseWrite()
		w.finish()
	})
}

// The window lets a long, fast path stay full, on one connection and on several.
func TestLongFatPath(t *testing.T) {
	for _, conns := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			const rate, size = 6_250_000, 60_000_000 // 50 Mbit/s
			w := newWorld(t, Options{})
			with := line{delay: 225 * time.Millisecond, rate: rate / conns, size: func(waiting int) int { return min(waiting, 16<<10) }}
			l, _, _ := w.open(with)
			bridge := w.other()
			time.Sleep(2 * time.Second)
			for range conns - 1 {
				w.join(with)
			}
			time.Sleep(2 * time.Second)
			began := time.Now()
			go func() {
				_, _ = bridge.Write(make([]byte, size))
				_ = bridge.CloseWrite()
			}()
			if n, err := io.Copy(io.Discard, l); n != size || err != nil {
				t.Fatal(n, err)
			}
			if took := time.Since(began); took > size*time.Second/rate*105/100+2*time.Second {
				t.Errorf("%d connections: it took %v", conns, took)
			}
			if s := bridge.Stats(); s.Retransmitted > 0 {
				t.Error(describe(s))
			}
			_ = l.Close()
			w.finish()
		})
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, _ := w.open(line{})
		bridge := w.other()
		for range 2 {
			_ = l.SetReadDeadline(time.Now().Add(time.Second))
			began := time.Now()
			if n, err := l.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%d, %v after %v", n, err, time.Since(began))
			}
		}
		_ = l.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := l.Write(make([]byte, 10<<20)) // nobody reads
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > sendBuffer+firstCredit {
			t.Errorf("%d, %v", n, err)
		}
		_ = l.SetDeadline(time.Time{})
		go func() {
			_, _ = l.Write(make([]byte, 1000))
			_ = l.CloseWrite()
		}()
		if got, err := io.Copy(io.Discard, bridge); int(got) != n+1000 || err != nil {
			t.Errorf("%d of %d bytes came, %v", got, n+1000, err)
		}
		_ = bridge.Close()
		w.finish()
	})
}

// A reader that pauses stops the writer, and a link that waits for its reader lives as long as the other side answers.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, _ := w.open(line{delay: 10 * time.Millisecond})
		bridge := w.other()
		go func() {
			_, _ = l.Write(make([]byte, 8<<20))
			_ = l.CloseWrite()
		}()
		time.Sleep(10 * time.Minute)
		if s := l.Stats(); s.Sent != firstCredit || bridge.Stats().Unread != firstCredit || s.WireOut > firstCredit+10_000 {
			t.Error(describe(s))
		}
		if n, err := io.Copy(io.Discard, bridge); n != 8<<20 || err != nil {
			t.Error(n, err)
		}
		_ = bridge.Close()
		w.finish()
	})
}

func TestClose(t *testing.T) {
	t.Run("what was written arrives", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{})
			l, _, _ := w.open(line{delay: 20 * time.Millisecond})
			if _, err := l.Write(content(100_000, 1)); err != nil {
				t.Fatal(err)
			}
			_ = l.Close()
			if _, err := l.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if _, err := l.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			got, err := io.ReadAll(w.other())
			if err != nil || !bytes.Equal(got, content(100_000, 1)) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			_ = w.bridge.Close()
			w.finish()
		})
	})
	t.Run("a writer to a closed link is told", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{})
			l, _, _ := w.open(line{delay: 20 * time.Millisecond})
			_, _ = l.Write(content(1000, 1))
			_ = l.Close()
			bridge := w.other()
			got, err := io.ReadAll(bridge)
			if err != nil || len(got) != 1000 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			time.Sleep(time.Second)
			var reset *ResetError
			if _, err = bridge.Write(make([]byte, 10<<20)); !errors.As(err, &reset) || !reset.Remote || reset.Code != Closed {
				t.Error(err)
			}
			<-l.Done()
			w.joins.Wait()
		})
	})
	t.Run("a reset leaves what came before it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{})
			l, _, _ := w.open(line{delay: 20 * time.Millisecond})
			_, _ = w.other().Write(content(1000, 1))
			time.Sleep(time.Second)
			w.bridge.Reset(Unreachable)
			<-l.Done()
			got, err := io.ReadAll(l)
			var reset *ResetError
			if len(got) != 1000 || !errors.As(err, &reset) || reset.Code != Unreachable || reset.HintText() == "" {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			w.joins.Wait()
		})
	})
	t.Run("a link without connections ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{Patience: 20 * time.Second})
			l, _, end := w.open(line{})
			w.other()
			time.Sleep(time.Second)
			end(nil)
			began := time.Now()
			<-l.Starved()
			<-l.Done()
			<-w.bridge.Done()
			if took := time.Since(began); took != 20*time.Second || !errors.Is(l.Err(), io.ErrUnexpectedEOF) {
				t.Errorf("%v after %v", l.Err(), took)
			}
			w.joins.Wait()
		})
	})
}

// A connection on a slow path brings blocks of an epoch that all others have left.
func TestLateBlocksOfAnOldEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, end := w.open(line{delay: 20 * time.Millisecond})
		bridge := w.other()
		for !l.Stats().Open {
			time.Sleep(time.Millisecond)
		}
		slow, err := l.Join([]byte{1}, false)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2000)
		if _, err := l.Write(content(100, 1)); err != nil {
			t.Fatal(err)
		}
		if n, err := slow.Fill(b); err != nil || n < 140 {
			t.Fatal(n, err)
		}
		// If the slow connection took the rki, another one repeats it.
		for began := time.Now(); !bridge.Stats().PostQuantum; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatal(describe(bridge.Stats()))
			}
		}
		far, rest, err := w.accept(b, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := far.Take(rest); err != nil {
			t.Error(err)
		}
		end(nil)
		l.Reset(Closed)
		bridge.Reset(Closed)
		w.joins.Wait()
	})
}

func TestEpochsOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{RekeyBytes: 100_000})
		w.seen = map[uint64]struct{}{}
		l, _, _ := w.open(line{delay: 30 * time.Millisecond})
		bridge := w.other()
		time.Sleep(time.Second)
		w.join(line{delay: 10 * time.Millisecond})
		w.join(line{delay: 70 * time.Millisecond, size: func(int) int { return 300 }})
		const rounds, size = 60, 20_000
		go func() {
			for i := range rounds {
				_, _ = l.Write(content(size, byte(i)))
				time.Sleep(20 * time.Second)
			}
			_ = l.CloseWrite()
		}()
		got := make([]byte, size)
		for i := range rounds {
			if _, err := io.ReadFull(bridge, got); err != nil || !bytes.Equal(got, content(size, byte(i))) {
				t.Fatalf("round %d: %v", i, err)
			}
			if i%10 == 5 { // the other side begins one too
				go func() { _, _ = bridge.Write(content(150_000, 1)) }()
			}
			if i%10 == 7 {
				if _, err := io.ReadFull(l, make([]byte, 150_000)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a, b := l.Stats(), bridge.Stats(); a.Epoch < 10 || a.Epoch != b.Epoch {
			t.Errorf("%d and %d epochs", a.Epoch, b.Epoch)
		}
		if n := len(l.keys.receive); n > maxEpochs {
			t.Errorf("%d epochs are remembered", n)
		}
		_ = bridge.Close()
		w.finish()
		if len(w.errs) > 0 {
			t.Error(w.errs)
		}
	})
}

// A connection whose cover has ended its sending half still receives, and leaves what waits to others.
func TestConnectionThatSendsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := still(t)
		l := w.client
		select {
		case <-l.Starved():
			t.Error("the connection is enough")
		default:
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := c.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		<-l.Starved()
		if _, err := l.Write(content(1000, 1)); err != nil {
			t.Fatal(err)
		}
		w.join(line{})
		got := make([]byte, 1000)
		if _, err := io.ReadFull(w.bridge, got); err != nil || !bytes.Equal(got, content(1000, 1)) {
			t.Error(err)
		}
		if err := c.Take(forge(w.bridge, block.Data, at(0, 1, 2, 3))); err != nil || l.Stats().Unread != 3 {
			t.Errorf("%v, %s", err, describe(l.Stats()))
		}
		l.Reset(Closed)
		w.bridge.Reset(Closed)
		w.joins.Wait()
	})
}

// The side that is done first repeats its last ack, where that was lost with its connection.
func TestLastAckIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, end := w.open(line{delay: 50 * time.Millisecond})
		bridge := w.other()
		time.Sleep(time.Second)
		_ = bridge.CloseWrite()
		time.Sleep(time.Second)
		_ = l.CloseWrite()
		time.Sleep(51 * time.Millisecond)
		synctest.Wait()
		if !bridge.complete() || l.complete() {
			t.Fatal("the last ack is not under way")
		}
		end(io.ErrUnexpectedEOF)
		<-l.Starved()
		w.join(line{delay: 50 * time.Millisecond})
		<-l.Done()
		<-bridge.Done()
		if l.Err() != nil || bridge.Err() != nil {
			t.Errorf("they ended with %v and %v", l.Err(), bridge.Err())
		}
		w.joins.Wait()
	})
}

// Links share memory. A link that gets none is slower. A link returns at its end all that it took.
func TestLinksShareMemory(t *testing.T) {
	took := map[int64]time.Duration{}
	const plenty = 100 << 20
	for _, memory := range []int64{0, plenty} {
		synctest.Test(t, func(t *testing.T) {
			budget := reliable.NewBudget(memory)
			w := newWorld(t, Options{})
			w.far = func(o *Options) { o.Memory = budget.Loan() }
			l, _, _ := w.open(line{delay: 225 * time.Millisecond})
			begin := time.Now()
			exchange(t, l, w.other(), content(8<<20, 1), content(8<<20, 2))
			took[memory] = time.Since(begin)
			if free := budget.Loan().Take(memory); free != (memory == 0) {
				t.Errorf("of %d bytes, nothing was taken: %v", memory, free)
			}
			w.finish()
			if !budget.Loan().Take(memory) {
				t.Errorf("not all of %d bytes came back", memory)
			}
		})
	}
	if took[0] < 2*took[plenty] {
		t.Errorf("without memory %v, with it %v", took[0], took[plenty])
	}
}
