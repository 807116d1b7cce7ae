package split

import (
	"sync/atomic"
	"testing"
	"time"

	"heddle/path"
)

// askedPath says what it is only once it is let, as a path does that asks the kernel.
type askedPath struct {
	*fakePath
	holds      atomic.Bool
	asked, let chan struct{}
}

func (p *askedPath) Describe() path.Info {
	if p.holds.Load() {
		p.asked <- struct{}{}
		<-p.let
	}
	return p.fakePath.Describe()
}

func TestStatusDoesNotHoldUpSends(t *testing.T) {
	slow := &askedPath{fakePath: &fakePath{name: "slow"}, asked: make(chan struct{}, 9), let: make(chan struct{})}
	f, _ := closedFake(t, 2, func(o *Options) {
		o.paths = map[string]path.Path{"a": slow, "b": &fakePath{name: "b"}}
	})
	defer f.Close()
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow.holds.Store(true)
	told := make(chan Status)
	go func() { told <- f.Status("relay") }()
	<-slow.asked
	sent := make(chan error, 1)
	go func() { sent <- f.Send([][]byte{[]byte("datagram")}) }()
	select {
	case err := <-sent:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a datagram waits until the status is told")
	}
	close(slow.let)
	if s := <-told; len(s.Paths) != 2 {
		t.Errorf("%d paths", len(s.Paths))
	}
}
