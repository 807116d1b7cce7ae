package cover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"heddle/internal/pacing"
)

// Life bounds one connection. A field that is zero bounds nothing.
type Life struct {
	Age   time.Duration // since [Carry] began
	Idle  time.Duration // without a byte, either way
	Bytes int64         // that this end writes; the peer bounds its own direction
}

// MinBytes is the least that [Life.Bytes] may be: room for a hello and for some blocks.
const MinBytes = 2000

func (l Life) check() error {
	switch {
	case l.Age < 0 || l.Idle < 0:
		return fmt.Errorf("age %v, idle %v: no time is below 0", l.Age, l.Idle)
	case l.Bytes != 0 && l.Bytes < MinBytes:
		return fmt.Errorf("%d bytes are too few for a connection", l.Bytes)
	}
	return nil
}

// errOver is why a connection ends whose life is over, or whose peer ended it.
var errOver = errors.New("the life of the connection is over")

// linger bounds how long an end that sends no more waits for the peer's last bytes.
const linger = 10 * time.Second

// Wire is the sending half of a connection whose life is bounded.
type Wire struct {
	conn *pacing.Conn
	life Life
	left int64
	idle *time.Timer
}

// Left returns how many bytes may yet be written: at most want.
func (w *Wire) Left(want int) int {
	if w.life.Bytes == 0 {
		return want
	}
	return int(min(int64(want), w.left))
}

// Least returns how many bytes the next write should have at the least, so that the connection stays fast. It is mostly 0.
func (w *Wire) Least() int { return w.conn.Least() }

// Write fails if more is written than Left says.
func (w *Wire) Write(b []byte) (int, error) {
	if w.Left(len(b)) < len(b) {
		return 0, errOver
	}
	w.left -= int64(len(b))
	w.touch()
	n, err := w.conn.Write(b)
	w.touch()
	return n, err
}

func (w *Wire) touch() {
	if w.idle != nil {
		w.idle.Reset(w.life.Idle)
	}
}

// Carry runs send, and passes what arrives to take, until the life of the connection is over, which returns nil, or one of
// them fails. The context of send ends with the life, or when the peer ended the connection. After send returned, Carry
// ends its direction, and still takes what arrives until the peer ends the other one, for 10 s at most. take gets at most size
// bytes at once.
func Carry(ctx context.Context, c net.Conn, life Life, size int, take func([]byte) error, send func(context.Context, *Wire) error) error {
	living, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := &Wire{conn: pacing.New(c), life: life, left: life.Bytes}
	over := func() { end(errOver) }
	if life.Age > 0 {
		defer time.AfterFunc(life.Age, over).Stop()
	}
	if life.Idle > 0 {
		w.idle = time.AfterFunc(life.Idle, over)
		defer w.idle.Stop()
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	// A peer that reads nothing keeps no connection alive.
	defer context.AfterFunc(living, func() {
		if _ = c.SetWriteDeadline(time.Now().Add(linger)); ctx.Err() != nil {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	})()

	received := make(chan struct{})
	go func() {
		defer close(received)
		receive(c, w, size, take, end)
	}()
	err := send(living, w)
	switch why := context.Cause(living); {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(why, errOver):
		err = nil
	case why != nil:
		err = why // receiving failed
	}
	end(errOver)
	half, ok := c.(interface{ CloseWrite() error })
	if ok && ctx.Err() == nil && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(linger))
	} else {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	<-received
	return err
}

// receive takes what arrives until the peer's end. If take fails it drops what follows: closing a socket with unread bytes
// would reset the connection, and so lose bytes on their way to the peer.
func receive(c net.Conn, w *Wire, size int, take func([]byte) error, end context.CancelCauseFunc) {
	b := make([]byte, min(size, firstRead))
	for {
		n, err := c.Read(b)
		if n > 0 && take != nil {
			w.touch()
			if failed := take(b[:n]); failed != nil {
				end(failed)
				take = nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			end(errOver)
			return
		case err != nil:
			end(err)
			return
		case n == len(b) && n < size: // only busy connections hold a large buffer
			b = make([]byte, size)
		}
	}
}

// firstRead is the buffer of an idle connection, in bytes. It is larger than any datagram of a cover.
const firstRead = 8 << 10
