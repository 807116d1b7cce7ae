package pt

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
	_ "heddle/path/socks5" // the kind of path
)

// proxyPatience is the time for a proxy to connect.
const proxyPatience = 30 * time.Second

// proxyPath returns the way through the parent's proxy. No error shows its password.
func proxyPath(u *url.URL) (path.Path, error) {
	user := u.User.Username()
	password, _ := u.User.Password()
	host, port, err := netutil.SplitHostPort(u.Host)
	if err != nil {
		return nil, err
	}
	at, err := path.HostPort(host, port)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "socks5":
		o := path.Options{Base: path.NewSystem(0)}
		if user != "" {
			o.Secret = func(string) (path.Secret, error) { return path.Secret(user + ":" + password), nil }
		}
		return path.New(path.Spec{Name: "proxy", Kind: "socks5", Arg: u.Host}, o)
	case "http":
		return &simpleProxy{u.Scheme, at, func(c net.Conn, to path.Target) error { return connectHTTP(c, to, u.User) }}, nil
	case "socks4a":
		return &simpleProxy{u.Scheme, at, func(c net.Conn, to path.Target) error { return connectSOCKS4(c, to, user) }}, nil
	}
	return nil, fmt.Errorf("proxies of kind %s are unknown", u.Scheme)
}

// simpleProxy is a path of streams through a proxy that takes one request for each.
type simpleProxy struct {
	kind    string
	at      path.Target
	request func(net.Conn, path.Target) error
}

func (p *simpleProxy) Describe() path.Info {
	return path.Info{Name: "proxy", Kind: p.kind, Arg: p.at.String(), Observer: p.kind + ":" + p.at.String(), Exit: p.kind + ":" + p.at.String(), Endpoint: p.at.String(), Ready: true,
		Claim: "the proxy " + p.at.String() + ", and every network between it and you, sees your address and the bridge's; the bridge sees the proxy's address"}
}

// Dial asks the proxy for a connection.
func (p *simpleProxy) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, proxyPatience)
	defer cancel()
	c, err := path.Dial(ctx, path.NewSystem(0), p.at)
	if err != nil {
		return nil, err
	}
	path.KeepAlive(c)
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err = p.request(c, to)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, &path.Error{What: "the proxy " + p.at.String(), Why: "no connection to " + to.String(), Err: err}
	}
	return c, nil
}

// maxAnswer limits the header of a proxy's answer, in bytes.
const maxAnswer = 16 << 10

// connectHTTP sends a CONNECT (RFC 9110, section 9.3.6).
func connectHTTP(c net.Conn, to path.Target, user *url.Userinfo) error {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to.String()}, Host: to.String(), Header: http.Header{}}
	if user != nil {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
		r.Header["Proxy-Authorization"] = r.Header["Authorization"]
		delete(r.Header, "Authorization")
	}
	if err := r.Write(c); err != nil {
		return err
	}
	// One byte at a time, since what follows the header belongs to the bridge.
	var header []byte
	for one := []byte{0}; !bytes.HasSuffix(header, []byte("\r\n\r\n")); header = append(header, one[0]) {
		if len(header) == maxAnswer {
			return errors.New("its answer has no end")
		}
		if _, err := io.ReadFull(c, one); err != nil {
			return err
		}
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(header)), r)
	if err != nil {
		return errors.New("its answer is not HTTP")
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// connectSOCKS4 sends a request of SOCKS4, or of SOCKS4a for what is no IPv4 address.
func connectSOCKS4(c net.Conn, to path.Target, user string) error {
	name, ip := "", [4]byte{0, 0, 0, 1} // of SOCKS4a
	if to.Addr.Is4() {
		ip = to.Addr.As4()
	} else if name = to.Name; name == "" {
		name = to.Addr.String()
	}
	if strings.Contains(user+name, "\x00") {
		return errors.New("a name may not hold a zero byte")
	}
	b := binary.BigEndian.AppendUint16([]byte{4, 1}, to.Port)
	b = append(append(append(b, ip[:]...), user...), 0)
	if name != "" {
		b = append(append(b, name...), 0)
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	var answer [8]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	if answer[0] != 0 || answer[1] != 90 {
		return fmt.Errorf("it refuses, with code %d", answer[1])
	}
	return nil
}
