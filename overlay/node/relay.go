package node

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"heddle/overlay/client"
)

// How many bytes one read may bring: a stream that is idle holds a small buffer, one that fills it gets a large one.
const (
	copyIdle = 8 << 10
	copySize = 128 << 10
)

var (
	idleBuffers = sync.Pool{New: func() any { return new([copyIdle]byte) }}
	buffers     = sync.Pool{New: func() any { return new([copySize]byte) }}
)

// halfCloser is a connection of which one direction can end.
type halfCloser interface{ CloseWrite() error }

// relay carries a stream both ways until both ended, or the use did; first is what the client sent already. It gives why.
func (n *Node) relay(u *use, client net.Conn, first []byte, target net.Conn) error {
	stop := context.AfterFunc(u.ctx, func() { breakOff(client, target) })
	defer stop()
	var work sync.WaitGroup
	work.Go(func() {
		err := u.write(target, first, &n.counts.up)
		if err == nil {
			err = u.copy(target, client, &n.counts.up)
		}
		if err != nil {
			u.end(err)
		}
	})
	if err := u.copy(client, target, &n.counts.down); err != nil {
		u.end(err)
	}
	work.Wait()
	return context.Cause(u.ctx)
}

// breakOff resets both sides, so that neither takes what it has for the whole.
func breakOff(client, target net.Conn) {
	if v, ok := client.(*visitor); ok {
		reset(v.NetConn())
	}
	reset(target)
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// copy carries one direction to its end, which it passes on.
func (u *use) copy(to, from net.Conn, count *atomic.Uint64) error {
	small := idleBuffers.Get().(*[copyIdle]byte)
	defer idleBuffers.Put(small)
	for {
		read, err := from.Read(small[:])
		if writeErr := u.write(to, small[:read], count); writeErr != nil {
			return writeErr
		}
		if err == nil && read == copyIdle {
			err = u.copyMuch(to, from, count)
		}
		switch {
		case errors.Is(err, io.EOF):
			half, ok := to.(halfCloser)
			if !ok {
				return err
			}
			return half.CloseWrite()
		case err != nil:
			return err
		}
	}
}

// copyMuch carries on with a large buffer until a read brings little.
func (u *use) copyMuch(to, from net.Conn, count *atomic.Uint64) error {
	buffer := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buffer)
	for {
		read, err := from.Read(buffer[:])
		if writeErr := u.write(to, buffer[:read], count); writeErr != nil {
			return writeErr
		}
		if err != nil || read < copyIdle {
			return err
		}
	}
}

// write sends as much as the grant has bytes for.
func (u *use) write(to net.Conn, data []byte, count *atomic.Uint64) error {
	if len(data) == 0 {
		return nil
	}
	given := u.account.take(len(data))
	sent, err := to.Write(data[:given])
	count.Add(uint64(sent))
	if err == nil && given < len(data) {
		return &client.Refusal{Reason: client.ReasonUsedUp}
	}
	return err
}
