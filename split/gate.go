package split

import (
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/tun"
)

// gate bounds how many packets are inside wireguard-go in one direction. Each holds a buffer of 64 KiB there, and
// without a bound a busy TCP connection fills thousands. What waits outside waits in the kernel, which tells the sender.
type gate struct {
	limit  int64
	inside atomic.Int64
	freed  chan struct{}
}

// A packet that wireguard-go drops never comes out. After gatePatience without any coming out the gate forgets them.
const (
	gateLimit    = 64
	gatePatience = 5 * time.Millisecond
)

func newGate(limit int64) *gate { return &gate{limit: limit, freed: make(chan struct{}, 1)} }

// wait blocks while the gate is full.
func (g *gate) wait() {
	for g.inside.Load() >= g.limit {
		patience := time.NewTimer(gatePatience)
		select {
		case <-g.freed:
			patience.Stop()
		case <-patience.C:
			g.inside.Store(0)
		}
	}
}

func (g *gate) enter(n int) { g.inside.Add(int64(n)) }

func (g *gate) leave(n int) {
	if g.inside.Add(-int64(n)) < 0 {
		g.inside.Store(0)
	}
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// Bound gives the device that wireguard-go must be made with, so that the bind can bound the packets inside it.
func (b *Bind) Bound(d tun.Device) tun.Device { return &boundDevice{Device: d, bind: b} }

type boundDevice struct {
	tun.Device
	bind *Bind
}

func (d *boundDevice) Read(packets [][]byte, sizes []int, offset int) (int, error) {
	d.bind.up.wait()
	n, err := d.Device.Read(packets, sizes, offset)
	d.bind.up.enter(n)
	return n, err
}

func (d *boundDevice) Write(packets [][]byte, offset int) (int, error) {
	n, err := d.Device.Write(packets, offset)
	d.bind.down.leave(len(packets))
	return n, err
}
