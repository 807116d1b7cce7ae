// Package door is what the listeners of both backends of striping have in common: it accepts connections, bounds how many of them
// are not part of a session yet, and hands sessions on.
//
// Do not use it where connections are served one by one: netutil and connlimit are enough there.
package door

import (
	"context"
	"net"
	"sync"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
)

// The limits of strangers: connections that are not part of a session yet, in all and from one source.
const (
	maxStrangers = 256
	PerSource    = 64
)

// Door is an open listener of sessions of type C.
type Door[C interface{ Abort(why string) }] struct {
	net.Listener
	ctx       context.Context // ends with the door, for the reason that Accept returns
	end       context.CancelCauseFunc
	strangers *connlimit.Limiter[string]
	inside    sync.WaitGroup // of strangers, and of the accept loop
	ready     chan C
}

// New returns a door. It accepts nothing before [Door.Serve].
func New[C interface{ Abort(why string) }](l net.Listener) *Door[C] {
	d := &Door[C]{Listener: l, strangers: connlimit.NewLimiter[string](PerSource, maxStrangers), ready: make(chan C)}
	d.ctx, d.end = context.WithCancelCause(context.Background())
	return d
}

// Serve starts to accept connections. greet runs in a goroutine for each; the connection is a stranger until greet returns or
// calls leave. If the door is closed, ctx ends and strangers are cut off.
func (d *Door[C]) Serve(greet func(ctx context.Context, c net.Conn, leave func())) {
	d.inside.Go(func() {
		d.end(netutil.Serve(context.Background(), d.Listener, func(c net.Conn) { // Close ends it
			from := Source(c)
			if !d.strangers.Acquire(from) {
				netutil.Reset(c)
				return
			}
			d.inside.Add(1)
			cutOff := context.AfterFunc(d.ctx, func() { c.Close() })
			leave := sync.OnceFunc(func() {
				cutOff()
				d.strangers.Release(from)
				d.inside.Done()
			})
			go func() {
				defer leave()
				greet(d.ctx, c, leave)
			}()
		}))
	})
}

// Source returns the name by which the connections of one source are counted.
func Source(c net.Conn) string {
	if from := connlimit.SourceOf(c.RemoteAddr()); from.IsValid() {
		return from.String()
	}
	return c.RemoteAddr().String()
}

// Strangers returns how many connections are not part of a session.
func (d *Door[C]) Strangers() int { return d.strangers.Count() }

// Closed returns a channel that is closed when the door ends.
func (d *Door[C]) Closed() <-chan struct{} { return d.ctx.Done() }

// ClosedWhy is why sessions are aborted that nobody accepted before the door ended.
const ClosedWhy = "the listener was closed"

// Deliver blocks until Accept takes a session, or the session is over. It aborts the session if the door ends before.
func (d *Door[C]) Deliver(c C, over <-chan struct{}) {
	select {
	case d.ready <- c:
	case <-over:
	case <-d.ctx.Done():
		c.Abort(ClosedWhy)
	}
}

// Accept returns the next session, or the reason why the door ended.
func (d *Door[C]) Accept() (c C, err error) {
	select {
	case c = <-d.ready:
		return c, nil
	case <-d.ctx.Done():
		return c, context.Cause(d.ctx)
	}
}

// Fail ends the door for a reason, and accepts nothing more.
func (d *Door[C]) Fail(why error) error {
	d.end(why)
	err := d.Listener.Close()
	d.inside.Wait()
	return err
}

// Close stops listening. Accepted sessions go on.
func (d *Door[C]) Close() error { return d.Fail(net.ErrClosed) }
