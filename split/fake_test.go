package split

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"heddle/path"
	"heddle/schedule"
)

// fakePath is a path in memory: what was sent on it can be read, what arrives on it can be put.
type fakePath struct {
	name string

	mu       sync.Mutex
	sent     [][]byte
	flow     *fakeFlow
	fail     error          // of Open
	rotate   func() error   // of its flows, which have no Rotate where it is nil
	carry    func([][]byte) // receives what its flows send; may be nil
	wanted   bool           // the last Open asked for the order
	share    string
	endpoint string
	exit     string
	mtu      int
	fragment bool
}

type fakeFlow struct {
	path    *fakePath
	arrived chan []path.Inbound
	failed  chan error // what Receive says once
	done    chan struct{}
	once    sync.Once
}

var fakes sync.Map // name -> *fakePath

func init() {
	path.Register(path.Kind{Scheme: "fake", Carries: path.Datagrams, New: func(s path.Spec, _ path.Options) (path.Path, error) {
		p, _ := fakes.LoadOrStore(s.Arg, &fakePath{name: s.Arg})
		return p.(*fakePath), nil
	}})
}

func (p *fakePath) Open(ctx context.Context, _ netip.AddrPort) (path.Flow, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = path.WantsOrder(ctx)
	if p.fail != nil {
		return nil, p.fail
	}
	p.flow = &fakeFlow{path: p, arrived: make(chan []path.Inbound, 64), failed: make(chan error, 1), done: make(chan struct{})}
	if p.rotate != nil {
		return &rotatingFlow{p.flow, p.rotate}, nil
	}
	return p.flow, nil
}

type rotatingFlow struct {
	*fakeFlow
	rotate func() error
}

func (f *rotatingFlow) Rotate() error { return f.rotate() }

func (p *fakePath) Describe() path.Info {
	observer := "fake:" + p.name
	if p.share != "" {
		observer = p.share
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return path.Info{Name: p.name, Kind: "fake", Observer: observer, Endpoint: p.endpoint, Exit: p.exit, MTU: p.mtu, Fragments: p.fragment, Ready: true}
}

func (f *fakeFlow) Send(datagrams [][]byte) (int, error) {
	f.path.mu.Lock()
	defer f.path.mu.Unlock()
	f.path.sent = append(f.path.sent, datagrams...)
	if f.path.carry != nil {
		f.path.carry(datagrams)
	}
	return len(datagrams), nil
}

func (f *fakeFlow) Receive(into []path.Inbound) (int, error) {
	select {
	case in := <-f.arrived:
		return copy(into, in), nil
	case err := <-f.failed:
		return 0, err
	case <-f.done:
		return 0, net.ErrClosed
	}
}

func (f *fakeFlow) Check() error {
	f.path.mu.Lock()
	defer f.path.mu.Unlock()
	return f.path.fail
}

func (f *fakeFlow) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// take gives what was sent on the path since the last take.
func (p *fakePath) take() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.sent
	p.sent = nil
	return out
}

// put makes a datagram arrive.
func (p *fakePath) put(from netip.AddrPort, data []byte) { p.putOrdered(from, data, 0, 0) }

// putOrdered makes a datagram arrive with its place in what an exit sent.
func (p *fakePath) putOrdered(from netip.AddrPort, data []byte, exit, order uint64) {
	p.mu.Lock()
	flow := p.flow
	p.mu.Unlock()
	flow.arrived <- []path.Inbound{{Data: data, Size: max(len(data), 1), From: from, Exit: exit, Order: order}}
}

// carries sets the largest packet of the path.
func (p *fakePath) carries(mtu int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mtu = mtu
}

// breaks makes the path fail to open, nil mends it.
func (p *fakePath) breaks(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

var fakeServer = netip.MustParseAddrPort("192.0.2.1:51820")

// newFake makes a session over n paths in memory, open and received from until the test ends.
func newFake(t *testing.T, n int, change func(*Options)) (*Session, []*fakePath) {
	t.Helper()
	f, paths := closedFake(t, n, change)
	openFake(t, f)
	return f, paths
}

// openFake opens a session and receives from it until the test ends.
func openFake(t *testing.T, f *Session) {
	t.Helper()
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for i := range f.Paths() {
		work.Go(func() {
			into := make([]path.Inbound, 4)
			for {
				if _, err := f.Receive(i, into); err != nil {
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		f.Close()
		work.Wait()
	})
}

func closedFake(t *testing.T, n int, change func(*Options)) (*Session, []*fakePath) {
	t.Helper()
	o := Options{Session: "test", To: fakeServer.String(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Schedule: schedule.Config{Name: "round-robin", Every: schedule.Every{Packets: 1}}}
	var paths []*fakePath
	for i := range n {
		name := t.Name() + "-" + string(rune('a'+i))
		p := &fakePath{name: name}
		fakes.Store(name, p)
		paths = append(paths, p)
		o.Via = append(o.Via, path.Spec{Name: string(rune('a' + i)), Kind: "fake", Arg: name})
	}
	if change != nil {
		change(&o)
	}
	f, err := NewSession(o)
	if err != nil {
		t.Fatal(err)
	}
	return f, paths
}
