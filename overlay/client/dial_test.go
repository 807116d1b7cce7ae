package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/polltest"
	"heddle/path"
)

// fakeNode does with each connection what handle does, and gives the path by it.
func fakeNode(t *testing.T, handle func(*tls.Conn)) path.Dialer {
	t.Helper()
	way, err := Through(fakePass(t, handle), fresh(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return way
}

func fakePass(t *testing.T, handle func(*tls.Conn)) Pass {
	t.Helper()
	node := fresh(t)
	config, err := node.Server(func(identity.Key) error { return nil }, Protocol)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(tls.Server(c, config))
			}()
		}
	}()
	return Pass{Name: "fake", Key: node.Key(), Addresses: []string{l.Addr().String()}}
}

var target = netip.MustParseAddrPort("192.0.2.1:443")

// The first bytes follow the request, and the node has them before it answers.
func TestEarlyBytesWaitForNoAnswer(t *testing.T) {
	way := fakeNode(t, func(c *tls.Conn) {
		in := bufio.NewReader(c)
		if r, err := http.ReadRequest(in); err != nil || r.Method != http.MethodConnect || r.Host != target.String() {
			t.Errorf("%+v, %v", r, err)
		}
		first := make([]byte, 5)
		if _, err := io.ReadFull(in, first); err != nil || string(first) != "hello" {
			t.Errorf("%q, %v", first, err)
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nwelcome")
	})
	c, err := way.Dial(path.WithEarly(t.Context()), path.At(target))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	got := make([]byte, 7)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "welcome" {
		t.Errorf("%q, %v", got, err)
	}
}

// A node that does not keep to the protocol is an error that says so, in time.
func TestHostileNodes(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		want string
	}{
		"closes":           {"", "closes the connection instead of an answer"},
		"rubbish":          {"\x00\x01\x02\r\n\r\n", "malformed HTTP"},
		"half an answer":   {"HTTP/1.1 200 O", "closes the connection instead of an answer"},
		"endless headers":  {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20), "instead of an answer"},
		"another status":   {"HTTP/1.1 204 No Content\r\n\r\n", "HTTP status 204"},
		"unknown reason":   {"HTTP/1.1 403 No\r\nHeddle-Refused: because\r\n\r\n", "HTTP status 403"},
		"escape sequences": {"HTTP/1.1 403 No\r\nHeddle-Refused: expired \x1b[2J\r\n\r\n", "the node fake"},
	} {
		way := fakeNode(t, func(node *tls.Conn) {
			http.ReadRequest(bufio.NewReader(node))
			io.WriteString(node, c.says)
		})
		_, err := way.Dial(t.Context(), path.At(target))
		if known, ok := errors.AsType[*path.Error](err); !ok || !strings.Contains(known.Error(), c.want) || strings.Contains(known.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
		early, err := way.Dial(path.WithEarly(t.Context()), path.At(target))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := early.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, early: %v", name, err)
		}
	}
}

// Who never answers costs no more than the time that was given.
func TestSilentNode(t *testing.T) {
	for name, handle := range map[string]func(*tls.Conn){
		"no handshake": func(c *tls.Conn) { io.Copy(io.Discard, c.NetConn()) },
		"no answer":    func(c *tls.Conn) { io.Copy(io.Discard, c) },
	} {
		polltest.Again(t, func(try int) error { // as short as lets a busy machine connect
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond<<try)
			defer cancel()
			_, err := fakeNode(t, handle).Dial(ctx, path.At(target))
			if err == nil {
				t.Fatalf("%s: it answered", name)
			}
			if known, ok := errors.AsType[*path.Error](err); !ok || !strings.Contains(known.Why, "does not answer in time") {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
}

// What a node says of itself is shown to people, and cannot be more than words.
func TestStatusOfAHostileNode(t *testing.T) {
	const esc = `\u001b]0;x\u0007\u001b[2J\n\u009b`
	for name, body := range map[string]string{
		"escape sequences": `{"name":"` + esc + `","listen":"` + esc + `","modes":["` + esc + `"],"grants":[{"id":"` + esc + `","modes":["` + esc + `"],"to":["` + esc + `"]}]}`,
		"too long":         strings.Repeat(" ", longestReply+1) + "{}",
		"rubbish":          "[]",
	} {
		client, err := New(fakePass(t, func(node *tls.Conn) {
			http.ReadRequest(bufio.NewReader(node))
			fmt.Fprintf(node, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}), fresh(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Status(t.Context())
		client.Close()
		if text := fmt.Sprintf("%v %v", got, err); strings.ContainsAny(text, "\x1b\n\u009b") || (err == nil) != (name == "escape sequences") {
			t.Errorf("%s: %.300q", name, text)
		}
	}
}
