package client

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"net"
	"sync"

	"heddle/internal/tlsbatch"
)

// longestAnswer bounds a node's answer before the stream, in bytes.
const longestAnswer = 16 << 10

// conn is a stream through a node. Its first bytes may be sent before the node has answered.
type conn struct {
	*tlsbatch.Conn
	reach *reach
	to    string

	once   sync.Once
	answer error // why there is no stream; written once
	in     *bufio.Reader
	limit  *io.LimitedReader
}

var _ net.Conn = (*conn)(nil)

func newConn(secure *tlsbatch.Conn, r *reach, to string) *conn {
	limit := &io.LimitedReader{R: secure, N: longestAnswer}
	return &conn{Conn: secure, reach: r, to: to, limit: limit, in: bufio.NewReader(limit)}
}

// answered reads the node's answer, once.
func (c *conn) answered() error {
	c.once.Do(func() {
		if err := readAnswer(c.in); err != nil {
			c.answer = c.reach.explain(err, c.to)
			c.Conn.Close()
		}
	})
	return c.answer
}

// Read reads from the destination. The first call waits for the node's answer; a refusal is its error.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.answered(); err != nil {
		return 0, err
	}
	if c.in != nil {
		if c.in.Buffered() > 0 {
			return c.in.Read(p[:min(len(p), c.in.Buffered())])
		}
		c.in = nil
	}
	return c.Conn.Read(p)
}

// Write sends to the destination. The node buffers the bytes until it has connected.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if timeout, ok := errors.AsType[net.Error](err); err == nil || ok && timeout.Timeout() {
		return n, err
	}
	// The node closed the connection. Its answer says why.
	return n, cmp.Or(c.answered(), err)
}
