package socks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/internal/socks5"
	"heddle/proxy/users"
)

// replyFor maps a dial error to a SOCKS5 reply.
func replyFor(err error) socks5.Reply {
	var lookup *lookupError
	switch {
	case err == nil:
		return socks5.Succeeded
	case errors.Is(err, socks5.NotAllowed):
		return socks5.NotAllowed
	case errors.Is(err, socks5.HostUnreachable):
		return socks5.HostUnreachable
	case errors.Is(err, ErrOutside):
		return socks5.NetworkUnreachable
	case errors.As(err, &lookup):
		return socks5.HostUnreachable
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(err.Error(), "connection was refused"): // gVisor's text
		return socks5.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return socks5.TimedOut
	}
	return socks5.Failure
}

// maxHeader limits the header of an HTTP request, in bytes.
const maxHeader = 16 << 10

// serveHTTP serves one CONNECT request. It answers other methods with a hint.
func (s *Server) serveHTTP(ctx context.Context, client *connlimit.Place, in *bufio.Reader) {
	limited := &io.LimitedReader{R: in, N: maxHeader}
	head := bufio.NewReader(limited)
	request, err := http.ReadRequest(head)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			httpAnswer(client, http.StatusBadRequest, "this is a SOCKS5 and HTTP CONNECT proxy")
		}
		return
	}
	if request.Method != http.MethodConnect {
		httpAnswer(client, http.StatusMethodNotAllowed, "only CONNECT is served: let the client tunnel (curl --proxytunnel), or use SOCKS5")
		return
	}
	if !s.knows(client, request.Header) {
		return
	}
	to, err := httpTarget(request.Host)
	if err != nil {
		httpAnswer(client, http.StatusBadRequest, err.Error())
		return
	}
	// What the client sent after the header is in head's buffer. The header is complete, so the limit no longer applies.
	limited.N = 1<<63 - 1
	s.connect(ctx, client, head, to, func(err error) error {
		if err != nil {
			return httpAnswer(client, httpStatus(err), err.Error())
		}
		_, err = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
		return err
	})
}

// knows reports whether an HTTP client may continue, and otherwise answers it.
func (s *Server) knows(client *connlimit.Place, h http.Header) bool {
	if s.users == nil {
		return true
	}
	_, err := s.users.CheckHeader(netutil.AddrPort(client.RemoteAddr()).Addr(), h)
	switch {
	case err == nil:
		client.Proved()
		return true
	case errors.Is(err, users.ErrBusy):
		httpAnswer(client, http.StatusTooManyRequests, err.Error())
	default:
		httpAnswer(client, http.StatusProxyAuthRequired, "this proxy wants a user and a password")
	}
	return false
}

func httpTarget(host string) (socks5.Target, error) {
	name, port, err := netutil.SplitHostPort(host)
	if err != nil {
		return socks5.Target{}, err
	}
	return socks5.NewTarget(name, port)
}

func httpStatus(err error) int {
	switch {
	case errors.Is(err, errFull):
		return http.StatusServiceUnavailable
	case replyFor(err) == socks5.TimedOut:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

func httpAnswer(w io.Writer, status int, text string) error {
	text += "\n"
	more := ""
	switch status {
	case http.StatusProxyAuthRequired:
		more = "Proxy-Authenticate: Basic realm=\"heddle\"\r\n"
	case http.StatusTooManyRequests:
		more = "Retry-After: 10\r\n"
	}
	_, err := fmt.Fprintf(w, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), more, len(text), text)
	return err
}
