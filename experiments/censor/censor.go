package censor

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"heddle/internal/netutil"
	"heddle/lab"
	"heddle/path"
)

// Device is the TUN device that the packets cross: those that pass go out and come back.
const Device = "censor"

// Options control whom the censor blocks.
type Options struct {
	// Names are the listed servers. A name includes all names below it; case does not matter.
	Names    []string
	Residual time.Duration // how long a flow stays blocked; 0 means three minutes
	// Reset forges TCP resets to both ends of a connection that named a listed server (RFC 9293 section 3.5.2).
	Reset bool
	// Attacks are names of [Attacks], in the order in which they look at a segment. The first that acts ends the look.
	Attacks []string
	// Clients are the hosts whose packets it looks at. Empty is all.
	Clients []netip.Addr
}

const defaultResidual = 3 * time.Minute

// Censor is a running censor.
type Censor struct {
	device *lab.Diversion
	done   chan struct{}
	once   sync.Once
	err    error

	mu    sync.Mutex
	judge *judge
	lost  uint64

	late chan latePacket // of the attack delay
	host *lab.Host
	stop context.CancelFunc // of the probes
	work sync.WaitGroup     // sends probes, and late packets
}

// Status counts what a censor did.
type Status struct {
	Packets  uint64 `json:"packets"`  // that the router forwarded
	Initials uint64 `json:"initials"` // QUIC Initial packets among them, both directions
	Dropped  uint64 `json:"dropped"`  // packets of blocked flows
	Lost     uint64 `json:"lost"`     // packets that passed, but the kernel did not take back
	Names    []Name `json:"names"`    // in the order of the list
	// Attacks are in the order of the options.
	Attacks []Struck `json:"attacks"`
	Probed  int      `json:"probed"` // servers that the attack probe examined
}

// Struck counts what one attack did.
type Struck struct {
	Attack      string `json:"attack"`
	Connections uint64 `json:"connections"` // that it cut or ended
	Segments    uint64 `json:"segments"`    // on which it acted: of a cut connection the first one only
	Dropped     uint64 `json:"dropped"`     // packets of cut connections
}

// Name counts the hits of one name on the list.
type Name struct {
	Name    string `json:"name"`
	QUIC    uint64 `json:"quic"`    // flows that named it in QUIC
	TLS     uint64 `json:"tls"`     // flows that named it in TLS over TCP
	Dropped uint64 `json:"dropped"` // packets of these flows
}

// Start runs a censor on a host that forwards packets, until [Censor.Stop] or the end of ctx. Forwarded packets cross
// the host's device [Device].
func Start(ctx context.Context, host *lab.Host, options Options) (*Censor, error) {
	what := "censor on " + host.Name()
	if len(options.Names) == 0 && len(options.Attacks) == 0 {
		return nil, &path.Error{What: what, Why: "its list is empty", Hint: "name a server or an attack"}
	}
	for _, name := range options.Attacks {
		if attackByName(name) == nil {
			return nil, &path.Error{What: what, Why: fmt.Sprintf("there is no attack %q", name), Hint: "one of " + strings.Join(AttackNames(), ", ")}
		}
	}
	if options.Residual < 0 {
		return nil, &path.Error{What: what, Why: fmt.Sprintf("%v is no time", options.Residual), Hint: "leave it out for three minutes"}
	}
	c := &Censor{done: make(chan struct{}), judge: newJudge(options, time.Now), late: make(chan latePacket, mostLate), host: host}
	ctx, c.stop = context.WithCancel(ctx)
	c.judge.suspect = func(server netip.AddrPort, flight []byte) { c.work.Go(func() { c.examine(ctx, server, flight) }) }
	var err error
	if c.device, err = host.Divert(Device); err != nil {
		return nil, &path.Error{What: what, Hint: "one censor a host, and only on a router, such as home-gw", Err: err}
	}
	go c.run()
	c.work.Go(func() { c.sendLate(ctx) })
	context.AfterFunc(ctx, func() { c.Stop() })
	return c, nil
}

// Stop lets all packets pass again. It may be called again.
func (c *Censor) Stop() error {
	c.once.Do(func() {
		c.stop()
		c.err = c.device.Close()
		<-c.done
		c.work.Wait()
	})
	return c.err
}

// Status returns the counts so far.
func (c *Censor) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.judge.status
	s.Lost = c.lost
	s.Names, s.Attacks = append([]Name(nil), s.Names...), append([]Struck(nil), s.Attacks...)
	s.Probed = len(c.judge.probed)
	return s
}

// run reads packets from the device and writes back those that pass.
func (c *Censor) run() {
	defer close(c.done)
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.device.Read(buffer)
		if err != nil {
			return // closed
		}
		c.mu.Lock()
		pass, forged := c.judge.packet(buffer[:n])
		late := c.judge.late
		c.mu.Unlock()
		if pass {
			forged = append(forged, buffer[:n])
		}
		for _, packet := range forged {
			if late {
				c.delay(packet)
			} else {
				c.write(packet)
			}
		}
	}
}

// write lets a packet pass.
func (c *Censor) write(packet []byte) {
	if _, err := c.device.Write(packet); err != nil {
		c.lose()
	}
}

func (c *Censor) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost++
}

// mostLate bounds the packets that wait.
const mostLate = 4096

type latePacket struct {
	due  time.Time
	data []byte
}

// delay has a packet pass later. All wait equally long, so they keep their order.
func (c *Censor) delay(packet []byte) {
	select {
	case c.late <- latePacket{time.Now().Add(lateBy), bytes.Clone(packet)}:
	default:
		c.lose()
	}
}

func (c *Censor) sendLate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-c.late:
			if netutil.Sleep(ctx, time.Until(p.due)) == nil {
				c.write(p.data)
			}
		}
	}
}
