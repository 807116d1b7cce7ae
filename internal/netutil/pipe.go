package netutil

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
)

// Side is one side of a [Pipe]. Its reader and writer may differ, for example to count bytes or to return buffered ones.
type Side struct {
	io.Reader
	io.Writer
}

type halfCloser interface{ CloseWrite() error }

// Pipe copies in both directions until both end, and passes each end on with CloseWrite. It returns the bytes copied in each
// direction and the first error. If a direction fails, ctx ends, or the target of an ended direction has no CloseWrite, Pipe
// calls stop once with the reason. stop must unblock the reads and writes of both sides.
func Pipe(ctx context.Context, a, b Side, stop func(why error)) (toB, toA int64, err error) {
	var once sync.Once
	end := func(why error) {
		once.Do(func() {
			if err = why; errors.Is(why, io.EOF) {
				err = nil
			}
			stop(why)
		})
	}
	ended := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(ended)
		end(context.Cause(ctx))
	})
	carry := func(to, from Side, n *int64) {
		var err error
		if *n, err = Pour(to.Writer, from.Reader); err == nil {
			if _, ok := to.Writer.(halfCloser); !ok {
				err = io.EOF
			}
		}
		if err != nil {
			end(err)
		}
	}
	var back sync.WaitGroup
	back.Go(func() { carry(a, b, &toA) })
	carry(b, a, &toB)
	back.Wait()
	if !unhook() {
		<-ended
	}
	return toB, toA, err
}

// Pour copies until the end, and then calls CloseWrite if to has it.
func Pour(to io.Writer, from io.Reader) (int64, error) {
	n, err := transfer(to, from)
	if half, ok := to.(halfCloser); ok && err == nil {
		err = half.CloseWrite()
	}
	return n, err
}

// transfer copies in the kernel between two sockets or files, and otherwise uses ReadFrom or WriteTo of a side. It avoids
// these methods if only one side is a socket, as they then copy with a small buffer.
func transfer(to io.Writer, from io.Reader) (int64, error) {
	if kernel(to) && kernel(from) {
		return io.Copy(to, from)
	}
	if r, ok := to.(io.ReaderFrom); ok && !kernel(to) {
		return r.ReadFrom(from)
	}
	if w, ok := from.(io.WriterTo); ok && !kernel(from) {
		return w.WriteTo(to)
	}
	return shuttle(to, from)
}

func kernel(side any) bool {
	switch side.(type) {
	case *net.TCPConn, *net.UnixConn, *os.File:
		return true
	}
	return false
}

// Buffer sizes in bytes. An idle stream holds a small buffer; a stream that fills it gets a large one.
const (
	idleSize = 8 << 10
	busySize = 128 << 10
)

var (
	idleBuffers = sync.Pool{New: func() any { return new([idleSize]byte) }}
	busyBuffers = sync.Pool{New: func() any { return new([busySize]byte) }}
)

func shuttle(to io.Writer, from io.Reader) (total int64, err error) {
	small := idleBuffers.Get().(*[idleSize]byte)
	defer idleBuffers.Put(small)
	for err == nil {
		var n int
		if n, err = pass(to, from, small[:], &total); err == nil && n == idleSize {
			err = rush(to, from, &total)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}

// rush copies with a large buffer until a read returns little.
func rush(to io.Writer, from io.Reader, total *int64) error {
	large := busyBuffers.Get().(*[busySize]byte)
	defer busyBuffers.Put(large)
	for {
		if n, err := pass(to, from, large[:], total); err != nil || n < idleSize {
			return err
		}
	}
}

func pass(to io.Writer, from io.Reader, buffer []byte, total *int64) (int, error) {
	n, err := from.Read(buffer)
	if n == 0 {
		return n, err
	}
	written, writeErr := to.Write(buffer[:n])
	*total += int64(written)
	if writeErr != nil {
		return n, writeErr
	}
	return n, err
}
