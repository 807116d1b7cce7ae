package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/netutil"
	"heddle/lab"
)

// Crowd is a process of many clients of one site, each with an address and a connection of its own, which stays open. Many machines give a process some
// ten thousand descriptors and no more, so a bench has several crowds.
type Crowd struct {
	To                     netip.AddrPort
	Name, Query            string // of the site, and of each URL
	Root, Certificate, Key string // files
	From                   netip.Prefix
	Clients                int
}

// crowdAnswer tells how many clients have had an answer to their last request, and how often one had to connect again.
type crowdAnswer struct {
	Answered, Again int
	Error           string // why others have none, or did not at first
}

const (
	crowdWorkers = 4 // of a crowd, which connect or ask at a time
	crowdTries   = 3 // of a client to connect
	askFor       = 30 * time.Second
	// askAgainAfter is when a client that waits for the others asks again, since a sidecar ends connections of which it hears nothing for two minutes.
	askAgainAfter = time.Minute
)

// RunCrowd is the process: it reads a [Crowd], lets its clients connect and ask, and writes a line. For another line it lets all of them ask again by the same
// connections. It holds these until in ends.
func RunCrowd(ctx context.Context, in io.Reader, out io.Writer) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	c := crowd{}
	if err := orders.Decode(&c.Crowd); err != nil {
		return err
	}
	var err error
	if c.config, err = clientTLS(c.Name, c.Root, c.Certificate, c.Key); err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	var bored sync.WaitGroup
	bored.Go(func() { c.waitAwake(waiting) })
	defer bored.Wait()
	defer stop()
	c.connectAll(ctx)
	if err := answers.Encode(c.answer()); err != nil {
		return err
	}
	var order struct{}
	if err := orders.Decode(&order); err != nil {
		return fine(err)
	}
	stop()
	bored.Wait()
	c.askAll()
	if err := answers.Encode(c.answer()); err != nil {
		return err
	}
	return fine(orders.Decode(&order))
}

func fine(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type crowd struct {
	Crowd
	config *tls.Config

	mu    sync.Mutex
	all   []*visitor // those that had an answer, by its time
	asks  int        // those of which one is awaited
	again int
	err   error
}

// visitor is a client with a connection.
type visitor struct {
	*tls.Conn
	at time.Time // of the last answer
}

func (c *crowd) answer() crowdAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := crowdAnswer{Answered: len(c.all) + c.asks, Again: c.again}
	if c.err != nil {
		a.Error = c.err.Error()
	}
	return a
}

// note keeps a client that had an answer, or the first reason why one had none. c.mu is held.
func (c *crowd) note(v *visitor, err error) {
	if err == nil {
		v.at = time.Now()
		c.all = append(c.all, v)
	} else if c.err == nil {
		c.err = err
	}
}

// connectAll lets all clients connect and ask.
func (c *crowd) connectAll(ctx context.Context) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range crowdWorkers {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < c.Clients && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				for try := range crowdTries {
					v, err := c.connect(ctx, c.address(i))
					c.mu.Lock()
					if c.note(v, err); err != nil && try < crowdTries-1 {
						c.again++
					}
					c.mu.Unlock()
					if err == nil {
						break
					}
				}
			}
		})
	}
	all.Wait()
}

// address is that of a client. They are of 200 networks, as a sidecar bounds the connections of each.
func (c *crowd) address(i int) netip.Addr {
	const networks = 200
	b := c.From.Masked().Addr().As4()
	b[2], b[3] = byte(i%networks), byte(1+i/networks%250)
	return netip.AddrFrom4(b)
}

func (c *crowd) connect(ctx context.Context, from netip.Addr) (*visitor, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), KeepAlive: -1} // probes would be packets that no client asked for
	raw, err := d.DialContext(ctx, "tcp", c.To.String())
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: tls.Client(raw, c.config)}
	if err = v.HandshakeContext(ctx); err == nil {
		err = c.ask(v)
	}
	if err != nil {
		raw.Close()
	}
	return v, err
}

// ask gets the smallest object.
func (c *crowd) ask(v *visitor) error {
	_ = v.SetDeadline(time.Now().Add(askFor))
	if _, err := fmt.Fprintf(v, "GET /%s%s HTTP/1.1\r\nHost: %s\r\n\r\n", smallest.name, c.Query, c.Name); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReaderSize(v, 2048), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err == nil && (r.StatusCode != http.StatusOK || n != smallest.bytes || r.Close) {
		err = fmt.Errorf("%s: %s, %d bytes", c.Name, r.Status, n)
	}
	return err
}

// take takes up to so many clients whose last answer was before a time.
func (c *crowd) take(most int, before time.Time) []*visitor {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < min(most, len(c.all)) && c.all[n].at.Before(before) {
		n++
	}
	some := c.all[:n:n]
	c.all, c.asks = c.all[n:], c.asks+n
	return some
}

// waitAwake lets clients ask again after a while, until ctx ends.
func (c *crowd) waitAwake(ctx context.Context) {
	for netutil.Sleep(ctx, time.Second) == nil {
		for some := c.take(crowdWorkers, time.Now().Add(-askAgainAfter)); len(some) > 0 && ctx.Err() == nil; some = c.take(crowdWorkers, time.Now().Add(-askAgainAfter)) {
			c.askSome(some)
		}
	}
}

// askAll lets all clients ask again, those first that asked before the others.
func (c *crowd) askAll() {
	began := time.Now()
	for some := c.take(crowdWorkers, began); len(some) > 0; some = c.take(crowdWorkers, began) {
		c.askSome(some)
	}
}

func (c *crowd) askSome(some []*visitor) {
	var all sync.WaitGroup
	for _, v := range some {
		all.Go(func() {
			err := c.ask(v)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.asks--
			c.note(v, err)
		})
	}
	all.Wait()
}

// crowdProcess is the other side of [RunCrowd].
type crowdProcess struct {
	cmd     *exec.Cmd
	orders  *json.Encoder
	answers *json.Decoder
	in      io.Closer
}

func startCrowd(ctx context.Context, s *stage, host *lab.Host, c Crowd) (*crowdProcess, error) {
	p := &crowdProcess{cmd: host.Command(ctx, s.heddle, "lab", "bench", "crowd")}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = os.Stderr
	p.in, p.orders, p.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, p.orders.Encode(c)
}

func (p *crowdProcess) answer() (a crowdAnswer, err error) {
	if err := p.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("a crowd of clients has ended: %w", err)
	}
	return a, nil
}

// crowds are several of them.
type crowds []*crowdProcess

// answer adds the answers of all.
func (all crowds) answer() (sum crowdAnswer, err error) {
	each := make([]crowdAnswer, len(all))
	var waits errgroup.Group
	for i, p := range all {
		waits.Go(func() (err error) {
			each[i], err = p.answer()
			return err
		})
	}
	err = waits.Wait()
	for _, a := range each {
		sum.Answered, sum.Again = sum.Answered+a.Answered, sum.Again+a.Again
		if sum.Error == "" {
			sum.Error = a.Error
		}
	}
	return sum, err
}

// order lets the clients of all ask again.
func (all crowds) order() (err error) {
	for _, p := range all {
		err = errors.Join(err, p.orders.Encode(struct{}{}))
	}
	return err
}

// Close lets the processes end, which closes their connections.
func (all crowds) Close() (err error) {
	for _, p := range all {
		err = errors.Join(err, p.in.Close())
	}
	for _, p := range all {
		err = errors.Join(err, p.cmd.Wait())
	}
	return err
}
