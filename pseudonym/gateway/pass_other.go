//go:build !unix

package gateway

import (
	"errors"
	"io"
	"net"
)

func socketPair() (near, far net.Conn, err error) { return nil, nil, errors.ErrUnsupported }

func giveDescriptor(*net.UnixConn, int, []byte) error { return errors.ErrUnsupported }

func takeDescriptor(net.Conn) (net.Conn, io.Reader, error) { return nil, nil, errors.ErrUnsupported }

func hasEnded(*net.UnixConn) bool { return true }
