package stripe

import (
	"errors"
	"io"
	"net"
	"time"

	"heddle/internal/reliable"
)

// gather limits the chunks of one write in WriteTo.
const gather = 32

// WriteTo writes the stream to w until its end, several segments a system call if w is a connection. It saves a copy.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	var n int64
	var chunks [gather]reliable.Unit
	for {
		c.mu.Lock()
		count := 0
		torn := c.torn(time.Now())
		for count < gather && !torn {
			u, ok := c.in.Pop()
			if !ok {
				break
			}
			chunks[count] = u
			count++
		}
		var err error
		if count == 0 && !torn {
			err = c.readError()
		}
		c.mu.Unlock()
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		case count > 0:
			m, err := c.pass(w, chunks[:count])
			if n += m; err != nil {
				return n, err
			}
			continue
		}
		if err := c.await(c.in.readable, &c.readBy); err != nil {
			return n, err
		}
	}
}

// pass writes chunks and opens the peer's window by as much.
func (c *Conn) pass(w io.Writer, chunks []reliable.Unit) (int64, error) {
	buffers := make(net.Buffers, 0, gather)
	size := 0
	for i := range chunks {
		buffers = append(buffers, chunks[i].Data())
		size += len(chunks[i].Data())
	}
	n, err := buffers.WriteTo(w)
	for _, chunk := range chunks {
		giveBuffer(chunk.Buf)
	}
	c.mu.Lock()
	c.in.Consume(size, time.Now()) // what w did not take is lost
	c.ackAll()
	c.mu.Unlock()
	return n, err
}

// ReadFrom sends what r gives, until r ends. It does not end the stream. It saves a copy.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	var n int64
	for {
		room, err := c.roomToRead()
		if err != nil {
			return n, err
		}
		if room == nil {
			if err := c.await(c.out.writable, &c.writeBy); err != nil {
				return n, err
			}
			continue
		}
		m, err := r.Read(room) // c.writing is held
		c.mu.Lock()
		if broken := c.writeError(); broken != nil {
			c.mu.Unlock()
			return n, broken
		}
		c.out.Commit(m)
		c.mu.Unlock()
		n += int64(m)
		wake(c.out.wake)
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// roomToRead returns a free part of the ring, or nothing while too little is free.
func (c *Conn) roomToRead() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.out
	if err := c.writeError(); err != nil {
		return nil, err
	}
	if s.Free() < (s.Free()+s.Pending())/4 {
		return nil, nil
	}
	return s.Space(), nil
}
