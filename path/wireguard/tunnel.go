package wireguard

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/path/resolve"
	"heddle/path/wgconf"
)

const (
	reachPatience = 10 * time.Second       // for the path under the tunnel
	shakePatience = 20 * time.Second       // for a handshake, before the endpoint is looked up again
	retryEvery    = time.Second            // after the path under the tunnel failed
	startLook     = 20 * time.Millisecond  // between checks for the first handshake
	runLook       = 250 * time.Millisecond // between checks of a working tunnel
	answerLimit   = 10 * time.Second       // for an answer, once a handshake is too old
)

// tunnel is wireguard-go between the stack inside and the path under it. Its keeper connects and repairs it.
type tunnel struct {
	what   string
	config *wgconf.Config
	base   path.Path
	find   finder
	inside *inside
	bind   *bind
	device *device.Device
	peer   *device.Peer
	cancel context.CancelFunc
	done   chan struct{} // closed when the keeper ends

	mu      sync.Mutex
	why     error         // why the tunnel does not work; nil if it works
	failed  int           // failed attempts to connect
	changed chan struct{} // closed when the tunnel works, or an attempt failed
}

// finder looks up the host of an endpoint.
type finder func(ctx context.Context, host string) ([]netip.Addr, error)

// startTunnel starts a tunnel, which connects in the background. It fails only on permanent errors.
func startTunnel(what string, c *wgconf.Config, base path.Path, find finder, mtu int) (*tunnel, error) {
	in, err := newInside(c.Interface.Addresses, mtu)
	if err != nil {
		return nil, &path.Error{What: what, Why: "its tunnel cannot be made", Err: err}
	}
	t := &tunnel{what: what, config: c, base: base, find: find, inside: in, bind: newBind(in.up, in.down), done: make(chan struct{}), changed: make(chan struct{})}
	t.why = t.silent()
	t.device = device.NewDevice(in, t.bind, device.NewLogger(device.LogLevelSilent, ""))
	if err := t.device.IpcSet(c.UAPI(c.Peer.Endpoint, 0)); err != nil {
		t.device.Close()
		return nil, &path.Error{What: what, Why: "wireguard-go refuses the file", Err: err}
	}
	if err := t.device.Up(); err != nil {
		t.device.Close()
		return nil, &path.Error{What: what, Why: "wireguard-go does not start", Err: err}
	}
	t.peer = t.device.LookupPeer(device.NoisePublicKey(c.Peer.PublicKey.Bytes()))
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	go t.keep(ctx)
	return t, nil
}

// close ends the tunnel with all its flows.
func (t *tunnel) close() {
	t.cancel()
	<-t.done
	t.set(&path.Error{What: t.what, Why: "its tunnel was ended"})
	t.device.Close()
}

// check returns why the tunnel does not work, or nil.
func (t *tunnel) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// set records why the tunnel does not work, or nil.
func (t *tunnel) set(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if why == nil {
		t.wake()
	}
	t.why = why
}

// fail records why an attempt to connect or an established connection failed.
func (t *tunnel) fail(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.why = why
	t.failed++
	t.wake()
}

// wake wakes all callers of wait. t.mu is held.
func (t *tunnel) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// wait returns nil once the tunnel works. If an attempt fails or ctx ends, it returns why.
func (t *tunnel) wait(ctx context.Context) error {
	t.mu.Lock()
	before := t.failed
	t.mu.Unlock()
	for {
		t.mu.Lock()
		why, failed, changed := t.why, t.failed, t.changed
		t.mu.Unlock()
		if why == nil || failed != before {
			return why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return t.check()
		}
	}
}

// silent is the error of an endpoint that does not answer, with the last error from the network, if any.
func (t *tunnel) silent() error {
	return &path.Error{What: t.what, Why: "the WireGuard server " + t.config.Peer.Endpoint + " does not answer", Err: t.bind.said(),
		Hint: "is the endpoint right and up, does the path under the tunnel let UDP through, and does the server know this file's key? It is silent to strangers"}
}

// keep connects the tunnel, and reconnects it after failures, until ctx ends.
func (t *tunnel) keep(ctx context.Context) {
	defer close(t.done)
	for {
		err := t.reach(ctx)
		if err == nil {
			err = t.watch(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		t.fail(err)
		t.bind.use(nil, netip.AddrPort{})
		if netutil.Sleep(ctx, retryEvery) != nil {
			return
		}
	}
}

// reach looks the endpoint up and opens a flow to it on the path under the tunnel.
func (t *tunnel) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	addrs, err := t.lookup(ctx)
	if err != nil {
		return err
	}
	for _, to := range addrs {
		flow, openErr := path.Open(path.WithSession(ctx, ""), t.base, to) // shared by all sessions
		if openErr == nil {
			t.bind.use(flow, to)
			return nil
		}
		err = openErr
	}
	return &path.Error{What: t.what, Why: "no way to the WireGuard server " + t.config.Peer.Endpoint, Err: err, Hint: errhint.Of(err)}
}

// lookup returns the addresses of the endpoint.
func (t *tunnel) lookup(ctx context.Context) ([]netip.AddrPort, error) {
	server, err := resolve.Parse(t.config.Peer.Endpoint)
	if err != nil {
		return nil, err
	}
	addrs, err := t.find(ctx, server.Host)
	if err != nil {
		return nil, &path.Error{What: t.what, Why: "the WireGuard server's name cannot be looked up", Err: err,
			Hint: cmp.Or(errhint.Of(err), "give an address as the Endpoint in the file")}
	}
	return server.At(addrs), nil
}

// watch starts a handshake, and returns the reason when the tunnel stops working.
func (t *tunnel) watch(ctx context.Context) error {
	began := time.Now()
	t.peer.SendKeepalive() // starts a handshake if there was none
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	var seen pulse
	for works := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.bind.broken:
			return t.lost(t.bind.said())
		case now := <-tick.C:
			flow, _ := t.bind.current()
			if err := path.Check(flow); err != nil {
				return t.lost(err)
			}
			progress, err := t.progress()
			if err != nil {
				return t.lost(err)
			}
			seen.note(now, progress)
			switch {
			case !works && now.Sub(progress.handshake) < device.RejectAfterTime:
				works = true
				t.set(nil)
				tick.Reset(runLook)
			case !works:
				t.set(t.silent())
				if now.Sub(began) > shakePatience || t.refused() {
					return t.silent()
				}
			case seen.dead(now):
				return t.silent()
			}
		}
	}
}

// refused reports whether the endpoint's machine reported that nothing listens there.
func (t *tunnel) refused() bool {
	var u *path.Unreachable
	_, to := t.bind.current()
	return errors.As(t.bind.said(), &u) && u.FromServer(to.Addr())
}

// lost is the error of a tunnel whose path under it broke.
func (t *tunnel) lost(err error) error {
	return &path.Error{What: t.what, Why: "the path under its tunnel broke", Err: err, Hint: "it is opened again"}
}

// progress is wireguard-go's statistics of its peer.
type progress struct {
	handshake      time.Time // the last one; the epoch if there was none
	received, sent uint64    // bytes
}

func (t *tunnel) progress() (progress, error) {
	state, err := t.device.IpcGet()
	if err != nil {
		return progress{}, fmt.Errorf("wireguard-go tells nothing: %w", err)
	}
	var p progress
	var seconds, nanoseconds int64
	for lines := bufio.NewScanner(strings.NewReader(state)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		switch name {
		case "last_handshake_time_sec":
			seconds, _ = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			nanoseconds, _ = strconv.ParseInt(value, 10, 64)
		case "rx_bytes":
			p.received, _ = strconv.ParseUint(value, 10, 64)
		case "tx_bytes":
			p.sent, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	p.handshake = time.Unix(seconds, nanoseconds)
	return p, nil
}

// pulse tracks whether a peer answers. The zero value is ready for use.
type pulse struct {
	last  progress
	since time.Time // when the first unanswered packet was sent; zero if all are answered
}

func (p *pulse) note(now time.Time, is progress) {
	switch {
	case is.received != p.last.received:
		p.since = time.Time{}
	case is.sent != p.last.sent && p.since.IsZero():
		p.since = now
	}
	p.last = is
}

// dead reports whether WireGuard's own timers gave the session up, and a new handshake is not answered either. An idle
// tunnel is not dead: its next packet starts a handshake.
func (p *pulse) dead(now time.Time) bool {
	return now.Sub(p.last.handshake) > device.RejectAfterTime && !p.since.IsZero() && now.Sub(p.since) > answerLimit
}
