package censor

import (
	"context"
	"fmt"
	"sync"
	"time"

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
	// Reset forges TCP resets to both ends of a blocked connection (RFC 9293 section 3.5.2).
	Reset bool
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
}

// Status counts what a censor did.
type Status struct {
	Packets  uint64 `json:"packets"`  // that the router forwarded
	Initials uint64 `json:"initials"` // QUIC Initial packets among them, both directions
	Dropped  uint64 `json:"dropped"`  // packets of blocked flows
	Lost     uint64 `json:"lost"`     // packets that passed, but the kernel did not take back
	Names    []Name `json:"names"`    // in the order of the list
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
	if len(options.Names) == 0 {
		return nil, &path.Error{What: what, Why: "its list is empty", Hint: "name a server"}
	}
	if options.Residual < 0 {
		return nil, &path.Error{What: what, Why: fmt.Sprintf("%v is no time", options.Residual), Hint: "leave it out for three minutes"}
	}
	c := &Censor{done: make(chan struct{}), judge: newJudge(options, time.Now)}
	var err error
	if c.device, err = host.Divert(Device); err != nil {
		return nil, &path.Error{What: what, Hint: "one censor a host, and only on a router, such as home-gw", Err: err}
	}
	go c.run()
	context.AfterFunc(ctx, func() { c.Stop() })
	return c, nil
}

// Stop lets all packets pass again. It may be called again.
func (c *Censor) Stop() error {
	c.once.Do(func() {
		c.err = c.device.Close()
		<-c.done
	})
	return c.err
}

// Status returns the counts so far.
func (c *Censor) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.judge.status
	s.Lost = c.lost
	s.Names = append([]Name(nil), s.Names...)
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
		c.mu.Unlock()
		if pass {
			forged = append(forged, buffer[:n])
		}
		for _, packet := range forged {
			if _, err := c.device.Write(packet); err != nil {
				c.mu.Lock()
				c.lost++
				c.mu.Unlock()
			}
		}
	}
}
