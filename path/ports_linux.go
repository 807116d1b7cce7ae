package path

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

func init() {
	Register(Kind{Scheme: "ports", Argument: "device", Carries: Datagrams | Streams, New: newPortsPath})
}

// Limits on the age and number of old ports, which stay open to receive what is still under way.
const (
	portLinger   = 2 * time.Second
	portsPerFlow = 32
)

// portsPath is a device path whose flows change the local port at each switch (MIMIQ-lite in CoMPS, section 3.4.3).
type portsPath struct{ devicePath }

func newPortsPath(s Spec, o Options) (Path, error) {
	p, err := newDevicePath(s, o)
	if err != nil {
		return nil, err
	}
	return &portsPath{*p.(*devicePath)}, nil
}

func (p *portsPath) Describe() Info {
	info := p.devicePath.Describe()
	info.Claim = "the network behind " + p.spec.Arg + " sees all of it from one address, as many short flows from changing ports; whoever joins flows by address is not misled"
	return info
}

func (p *portsPath) Open(ctx context.Context, to netip.AddrPort) (Flow, error) {
	f := &portsFlow{open: func() (*udpFlow, error) {
		flow, err := p.devicePath.Open(ctx, to)
		if err != nil {
			return nil, err
		}
		return flow.(*udpFlow), nil
	}, heard: make(chan portBatch), done: make(chan struct{})}
	if err := f.Rotate(); err != nil {
		return nil, err
	}
	return f, nil
}

// portsFlow sends from its newest port, and also receives on older ones.
type portsFlow struct {
	open  func() (*udpFlow, error)
	heard chan portBatch
	done  chan struct{}
	close sync.Once

	mu    sync.Mutex
	ports []*udpFlow // oldest first

	pending chan struct{} // signals the reader of the last batch that its buffers are free again
}

type portBatch struct {
	inbound []Inbound
	err     error
	free    chan struct{}
}

func (f *portsFlow) Rotate() error {
	flow, err := f.open()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		flow.Close()
		return net.ErrClosed
	default:
	}
	f.ports = append(f.ports, flow)
	if len(f.ports) > portsPerFlow {
		f.ports[0].Close()
		f.ports = f.ports[1:]
	}
	if old := len(f.ports) - 2; old >= 0 {
		retired := f.ports[old]
		time.AfterFunc(portLinger, func() { f.retire(retired) })
	}
	go f.read(flow)
	return nil
}

func (f *portsFlow) retire(flow *udpFlow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.ports, flow); i >= 0 {
		f.ports = slices.Delete(f.ports, i, i+1)
		flow.Close()
	}
}

func (f *portsFlow) read(flow *udpFlow) {
	into, free := make([]Inbound, 1), make(chan struct{})
	for {
		n, err := flow.Receive(into)
		if err == net.ErrClosed {
			return
		}
		select {
		case f.heard <- portBatch{inbound: into[:n], err: err, free: free}:
		case <-f.done:
			return
		}
		select {
		case <-free:
		case <-f.done:
			return
		}
	}
}

func (f *portsFlow) newest() *udpFlow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ports[len(f.ports)-1]
}

func (f *portsFlow) Send(datagrams [][]byte) (int, error) {
	select {
	case <-f.done:
		return 0, net.ErrClosed
	default:
		return f.newest().Send(datagrams)
	}
}

func (f *portsFlow) Receive(into []Inbound) (int, error) {
	if f.pending != nil {
		select {
		case f.pending <- struct{}{}:
		case <-f.done:
			return 0, net.ErrClosed
		}
		f.pending = nil
	}
	select {
	case b := <-f.heard:
		f.pending = b.free
		return copy(into, b.inbound), b.err
	case <-f.done:
		return 0, net.ErrClosed
	}
}

func (f *portsFlow) Check() error { return f.newest().Check() }

func (f *portsFlow) LocalAddr() netip.AddrPort { return f.newest().LocalAddr() }

func (f *portsFlow) Close() error {
	f.close.Do(func() {
		close(f.done)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, p := range f.ports {
			p.Close()
		}
	})
	return nil
}
