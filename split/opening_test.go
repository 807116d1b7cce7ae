package split

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"heddle/path"
)

// slowPath takes its time to open, as a tunnel does.
type slowPath struct {
	*fakePath
	open chan struct{}
}

func (p *slowPath) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	select {
	case <-p.open:
		return p.fakePath.Open(ctx, to)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A relay trusts a path of which nothing was heard yet, but gives none a packet that is not open.
func TestPathThatIsBeingOpenedCarriesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast, slow := &fakePath{name: "fast"}, &slowPath{&fakePath{name: "slow"}, make(chan struct{})}
		f, _ := closedFake(t, 2, func(o *Options) {
			o.MinPaths = 1
			o.paths = map[string]path.Path{"a": fast, "b": slow}
		})
		defer f.Close()
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := f.Send([][]byte{[]byte("datagram")}); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(fast.take()); n != 10 {
			t.Errorf("%d of 10 datagrams left by the path that is open", n)
		}
		if dropped := f.members[1].up.dropped.Load(); dropped != 0 {
			t.Errorf("%d datagrams were lost on the path that is not", dropped)
		}
		if state, why := f.members[1].Health.State(); state != path.Down || why == "" {
			t.Errorf("it is %s (%s)", state, why)
		}
		close(slow.open)
		synctest.Wait()
		f.mu.Lock()
		f.judge(f.now())
		f.mu.Unlock()
		for range 10 {
			f.Send([][]byte{[]byte("datagram")})
		}
		if n := len(slow.take()); n != 5 {
			t.Errorf("%d of 10 datagrams left by the path once it was open", n)
		}
	})
}
