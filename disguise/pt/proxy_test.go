package pt

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"heddle/internal/socks5"
	"heddle/internal/tcptest"
	"heddle/path"
)

// join connects a proxy's client with its target.
func join(c net.Conn, to string) {
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		io.Copy(far, c)
		far.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, far)
}

func httpProxy(c *net.TCPConn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil || r.Method != http.MethodConnect {
		return
	}
	if r.Header.Get("Proxy-Authorization") != "Basic dXNlcjpxdW9rZQ==" { // user:quoke
		io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: lab\r\n\r\n")
	join(c, r.Host)
}

func socks4Proxy(c *net.TCPConn) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil || head[0] != 4 || head[1] != 1 {
		return
	}
	text := func() (s string) {
		for one := make([]byte, 1); ; s += string(one) {
			if _, err := io.ReadFull(c, one); err != nil || one[0] == 0 {
				return s
			}
		}
	}
	user, host := text(), net.IP(head[4:8]).String()
	if head[4] == 0 && head[5] == 0 && head[6] == 0 {
		host = text()
	}
	if user != "user" {
		c.Write([]byte{0, 93, 0, 0, 0, 0, 0, 0})
		return
	}
	c.Write([]byte{0, 90, 0, 0, 0, 0, 0, 0})
	join(c, net.JoinHostPort(host, fmt.Sprint(int(head[2])<<8|int(head[3]))))
}

func socks5Proxy(c *net.TCPConn) {
	check := func(user, password string) error {
		if user != "user" || password != "quoke" {
			return io.EOF
		}
		return nil
	}
	if ok, err := socks5.Negotiate(c, c, socks5.Auth{Password: check}); !ok || err != nil {
		return
	}
	_, to, err := socks5.ReadRequest(c)
	if err != nil {
		return
	}
	socks5.WriteReply(c, socks5.Succeeded, netip.AddrPort{})
	join(c, to.String())
}

func TestProxies(t *testing.T) {
	for kind, proxy := range map[string]func(*net.TCPConn){"http": httpProxy, "socks4a": socks4Proxy, "socks5": socks5Proxy} {
		t.Run(kind, func(t *testing.T) {
			at := tcptest.Serve(t, proxy).String()
			for user, works := range map[string]bool{"user:quoke": true, "other:quoke": false} {
				p := proxyOf(t, kind+"://"+user+"@"+at)
				c, err := path.Dial(t.Context(), p, path.At(tcptest.Serve(t, tcptest.Echo)))
				if (err == nil) != works {
					t.Errorf("%s: %v", user, err)
				}
				if err != nil {
					if strings.Contains(fmt.Sprint(err), "quoke") {
						t.Errorf("the error shows the password: %v", err)
					}
					continue
				}
				exchange(t, c)
				c.Close()
			}
			silent := tcptest.Serve(t, func(c *net.TCPConn) { c.Read(make([]byte, 1)) }).String()
			if _, err := path.Dial(t.Context(), proxyOf(t, kind+"://"+silent), path.At(tcptest.Serve(t, tcptest.Echo))); err == nil {
				t.Error("a proxy that only ends is one")
			}
		})
	}
}

// Tor hands a name to a proxy of SOCKS4a, and so do we an IPv6 address.
func TestSOCKS4a(t *testing.T) {
	near, far := net.Pipe()
	go connectSOCKS4(near, path.At(netip.MustParseAddrPort("[2001:db8::1]:443")), "u")
	got := make([]byte, 8+2+12)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "\x04\x01\x01\xbb\x00\x00\x00\x01u\x002001:db8::1\x00" {
		t.Errorf("%q, %v", got, err)
	}
}

func proxyOf(t *testing.T, text string) path.Path {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxyPath(u)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
