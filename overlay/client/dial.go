package client

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"

	"heddle/identity"
	"heddle/internal/dial"
	"heddle/internal/errhint"
	"heddle/internal/tlsbatch"
	"heddle/path"
)

// dialPatience bounds a connection to a destination, including the node's own connecting.
const dialPatience = 30 * time.Second

// GrantHeader carries a grant's text in a request.
const GrantHeader = "Heddle-Grant"

// dial makes the node connect to HOST:PORT.
func (r *reach) dial(ctx context.Context, to string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	secure, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(secure, r, to)
	stop := context.AfterFunc(ctx, func() { secure.SetDeadline(time.Unix(1, 0)) })
	_, err = fmt.Fprintf(secure, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n\r\n", to, to, GrantHeader, r.pass.Grant)
	if err == nil && !path.WantsEarly(ctx) {
		err = c.answered()
	}
	if !stop() { // the deadline may already have been set
		err = cmp.Or(err, context.Cause(ctx))
	}
	if err != nil {
		secure.Close()
		return nil, r.explain(err, to)
	}
	return c, nil
}

// connect connects to the node's first address that answers and proves the key.
func (r *reach) connect(ctx context.Context) (*tlsbatch.Conn, error) {
	at, failed := r.addresses(ctx)
	secure, err := dial.First(ctx, at, func(ctx context.Context, a netip.AddrPort) (*tlsbatch.Conn, error) {
		secure, err := r.connectTo(ctx, a)
		if _, wrong := errors.AsType[*identity.KeyError](failed); err != nil && !wrong { // a wrong key says more than silence
			failed = r.explainConnect(err, a.String())
		}
		return secure, err
	})
	if err != nil {
		return nil, failed
	}
	return secure, nil
}

// addresses returns the node's addresses, as far as its names resolve. If none does, the error says why.
func (r *reach) addresses(ctx context.Context) (at []netip.AddrPort, failed error) {
	for _, text := range r.pass.Addresses {
		host, port, err := SplitAddress(text)
		var addrs []netip.Addr
		if err == nil {
			addrs, err = r.o.AddressesOf(ctx, host)
		}
		if err != nil {
			failed = r.explainConnect(err, text)
		}
		for _, a := range addrs {
			at = append(at, netip.AddrPortFrom(a, port))
		}
	}
	return at, failed
}

func (r *reach) connectTo(ctx context.Context, at netip.AddrPort) (*tlsbatch.Conn, error) {
	plain, err := path.Dial(ctx, r.o.Base, path.At(at))
	if err != nil {
		return nil, err
	}
	path.KeepAlive(plain)
	secure := tlsbatch.Client(plain, r.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, err
	}
	return secure, nil
}

// explainConnect describes why the node was not reached.
func (r *reach) explainConnect(err error, address string) error {
	e := &path.Error{What: r.what, Why: fmt.Sprintf("the node %s (%s) cannot be reached", r.pass.Name, address), Err: err, Hint: cmp.Or(errhint.Of(err), "does it run, and does the network let TCP to that port pass?")}
	var name *net.DNSError
	switch {
	case errors.As(err, new(*identity.KeyError)):
		e.Why = fmt.Sprintf("what answers at %s is not the node %s", address, r.pass.Name)
	case errors.As(err, &name) && errhint.Of(err) == "":
		e.Hint = "is the name in the pass spelled right, and does this machine's resolver answer?"
	case errors.Is(err, context.DeadlineExceeded):
		e.Err, e.Why = nil, fmt.Sprintf("the node %s (%s) does not answer in time", r.pass.Name, address)
	case errors.Is(err, io.EOF), errors.As(err, new(tls.RecordHeaderError)), errors.As(err, new(tls.AlertError)):
		e.Hint = "is this a node's port? A node that has too many strangers at its door closes it too"
	}
	return e
}

// explain describes why a request failed.
func (r *reach) explain(err error, to string) error {
	var known *path.Error
	if errors.As(err, &known) {
		return err
	}
	e := &path.Error{What: r.what, Why: fmt.Sprintf("the node %s does not connect to %s", r.pass.Name, to), Err: err, Hint: errhint.Of(err)}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		e.Err, e.Why = nil, fmt.Sprintf("the node %s does not answer in time whether it reaches %s", r.pass.Name, to)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		e.Err, e.Why = nil, fmt.Sprintf("the node %s closes the connection instead of an answer", r.pass.Name)
		e.Hint = "its log may say more"
	}
	return e
}

// readAnswer reads a node's answer to a CONNECT.
func readAnswer(in *bufio.Reader) error {
	// A successful answer to CONNECT has no body (RFC 9110, section 9.3.6).
	answer, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return refusalOf(answer.StatusCode, answer.Header, time.Now())
}
