// Package door is the listener that both stripe backends share: it accepts connections, limits those that are not yet part
// of a session, and delivers sessions. Use netutil and connlimit to serve single connections.
package door

import (
	"context"
	"net"
	"sync"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
)

// Door is a listener of sessions of type C.
type Door[C interface{ Abort(why string) }] struct {
	net.Listener
	ctx       context.Context // ends with the door; its cause is the error of Accept
	end       context.CancelCauseFunc
	strangers *connlimit.Places // connections that are not yet part of a session
	inside    sync.WaitGroup    // strangers and the accept loop
	ready     chan C
}

// New returns a door, which accepts nothing before [Door.Serve].
func New[C interface{ Abort(why string) }](l net.Listener) *Door[C] {
	d := &Door[C]{Listener: l, strangers: connlimit.NewPlaces(connlimit.Guests), ready: make(chan C)}
	d.ctx, d.end = context.WithCancelCause(context.Background())
	return d
}

// Serve starts to accept connections. It calls greet in a goroutine for each; the connection holds a place, which it may lose to
// another, until greet returns or calls leave. ctx ends and strangers are cut off when the door is closed.
func (d *Door[C]) Serve(greet func(ctx context.Context, c *connlimit.Place, leave func())) {
	d.inside.Go(func() {
		d.end(netutil.Serve(context.Background(), d.Listener, func(raw net.Conn) { // Close ends it
			c := d.strangers.Enter(raw)
			d.inside.Add(1)
			cutOff := context.AfterFunc(d.ctx, func() { raw.Close() })
			leave := sync.OnceFunc(func() {
				cutOff()
				c.Leave()
				d.inside.Done()
			})
			go func() {
				defer leave()
				greet(d.ctx, c, leave)
			}()
		}))
	})
}

// Source names the observer at the far end of a connection: the source address or its network.
func Source(c net.Conn) string {
	if from := connlimit.SourceOf(c.RemoteAddr()); from.IsValid() {
		return from.String()
	}
	return c.RemoteAddr().String()
}

// Strangers returns the number of connections that are not part of a session.
func (d *Door[C]) Strangers() int { return d.strangers.Count() }

// Closed returns a channel that is closed when the door ends.
func (d *Door[C]) Closed() <-chan struct{} { return d.ctx.Done() }

// ClosedWhy is the reason given to sessions that nobody accepted before the door ended.
const ClosedWhy = "the listener was closed"

// Deliver blocks until Accept takes the session or the session is over. It aborts the session if the door ends first.
func (d *Door[C]) Deliver(c C, over <-chan struct{}) {
	select {
	case d.ready <- c:
	case <-over:
	case <-d.ctx.Done():
		c.Abort(ClosedWhy)
	}
}

// Accept returns the next session, or the error that ended the door.
func (d *Door[C]) Accept() (c C, err error) {
	select {
	case c = <-d.ready:
		return c, nil
	case <-d.ctx.Done():
		return c, context.Cause(d.ctx)
	}
}

// Fail ends the door with an error.
func (d *Door[C]) Fail(why error) error {
	d.end(why)
	err := d.Listener.Close()
	d.inside.Wait()
	return err
}

// Close stops listening. Accepted sessions continue.
func (d *Door[C]) Close() error { return d.Fail(net.ErrClosed) }
