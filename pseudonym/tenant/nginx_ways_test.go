package tenant

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/gateway"
)

// without comes to nginx without a gateway, as a client by a pseudo-address does.
func (v *visit) without() *visit { return &visit{keys: v.keys, at: v.near} }

// nginx takes clients without a gateway where they come by pseudo-addresses. They cannot say that they are somebody else.
func TestNginxWithoutAGateway(t *testing.T) {
	v, _ := newNginxVisit(t, node(t))
	direct := v.without()
	for _, protocol := range protocols {
		_, text := v.get(t, direct.browser(t, protocol), "GET", "/headers", nil, "X-Forwarded-For", "203.0.113.9")
		got := map[string]string{}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got["x-forwarded-for"] != "127.0.0.1" || got["host"] != site {
			t.Errorf("%s: %v, %v", protocol, got, err)
		}
	}
	target := "/?" + pseudonym.CapabilityKey + "=" + v.Capability.String()
	stranger := direct.config()
	stranger.Certificates = nil
	unknown := direct.config()
	unknown.ServerName = zone.Name(pseudonym.NewLabel())
	for name, nothing := range map[string]bool{
		"no certificate":            direct.nothing(t, stranger, v.name, target),
		"a name that nobody has":    direct.nothing(t, unknown, unknown.ServerName, target),
		"as by a gateway":           (&visit{keys: v.keys, at: v.near, intro: v.intro}).nothing(t, v.config(), v.name, target),
		"no gateway where it comes": (&visit{keys: v.keys, at: v.at}).nothing(t, v.config(), v.name, target),
	} {
		if !nothing {
			t.Errorf("%s: there is an answer", name)
		}
	}
	if direct.nothing(t, direct.config(), v.name, target) {
		t.Error("the pseudonym's own client gets nothing")
	}
}

// Somebody without the certificate gets no answer from nginx, whatever is wrong with the request.
func TestNginxTellsStrangersNothing(t *testing.T) {
	v, _ := newNginxVisit(t, serving(t, nil))
	stranger := v.config()
	stranger.Certificates = nil
	host := "Host: " + v.name + "\r\n"
	for name, text := range map[string]string{
		"a request":            "GET / HTTP/1.1\r\n" + host + "\r\n",
		"no URI":               "GET /%zz HTTP/1.1\r\n" + host + "\r\n",
		"a control in the URI": "GET /\x7f HTTP/1.1\r\n" + host + "\r\n",
		"a long URI":           "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\n" + host + "\r\n",
		"a long header":        "GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
		"TRACE":                "TRACE / HTTP/1.1\r\n" + host + "\r\n",
		"CONNECT":              "CONNECT " + v.name + ":443 HTTP/1.1\r\n" + host + "\r\n",
		"no method":            "!? / HTTP/1.1\r\n" + host + "\r\n",
		"another version":      "GET / HTTP/3.0\r\n" + host + "\r\n",
		"an old version":       "GET /\r\n",
		"no host":              "GET / HTTP/1.1\r\n\r\n",
		"a wrong host":         "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"two hosts":            "GET / HTTP/1.1\r\n" + host + host + "\r\n",
		"an unknown coding":    "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: cow\r\n\r\n",
		"a wrong length":       "POST / HTTP/1.1\r\n" + host + "Content-Length: x\r\n\r\n",
		"the end":              "GET /.well-known/heddle/close HTTP/1.1\r\n" + host + "\r\n",
		"the check":            "GET /.well-known/heddle/check HTTP/1.1\r\n" + host + "\r\n",
	} {
		c, err := v.dialAs(t, stranger)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(polltest.Patience))
		io.WriteString(c, text)
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); len(got) > 0 || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %.60q, %v", name, got, err)
		}
	}
	// Not even one that begins without TLS.
	c, err := v.reach(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(polltest.Patience))
	io.WriteString(c, "GET / HTTP/1.1\r\n"+host+"\r\n")
	if got, err := io.ReadAll(c); len(got) > 0 || err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("without TLS: %.60q, %v", got, err)
	}
}

// Route implements [gateway.Router]: the shelf's pseudonyms are at one address.
func (s *shelf) Route(ctx context.Context, l pseudonym.Label) (gateway.Place, error) {
	e, err := s.Pseudonym(ctx, l)
	if err != nil {
		return gateway.Place{}, err
	}
	return gateway.Place{Addresses: []string{s.at}, Until: e.Expires}, nil
}

// Ended implements [gateway.Router] and [mutual.Batcher].
func (s *shelf) Ended(_ context.Context, labels []pseudonym.Label) ([]pseudonym.Label, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(labels), func(l pseudonym.Label) bool { return s.entries[l] != nil }), nil
}

// When a pseudonym ends, a gateway that relays ends a WebSocket of it at nginx. nginx itself answers no more request, and keeps the socket.
func TestNginxSocketsOfARevokedPseudonym(t *testing.T) {
	v, s := newNginxVisit(t, node(t))
	s.at = v.at
	g := gateway.New(gateway.Options{Zone: zone, Router: s, Mode: gateway.Relay, Log: slog.New(slog.DiscardHandler)})
	at := run(t, g.Serve)
	relayed := (&visit{keys: v.keys, at: at}).socket(t, "/socket")
	direct := v.without().socket(t, "/socket")
	open := v.without().browser(t, "http/1.1")
	v.get(t, open, "GET", "/", nil)
	echo := func(c *websocket.Conn) error {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	}
	for name, c := range map[string]*websocket.Conn{"relayed": relayed, "direct": direct} {
		if err := echo(c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	s.remove(v.Label)
	s.changes <- v.Label
	g.Forget(t.Context(), v.Label)
	polltest.Await(t, "the socket ends at the gateway", func() bool { return echo(relayed) != nil })
	polltest.Await(t, "no more request is answered", func() bool {
		r, err := open.Get("https://" + v.name + "/")
		if err == nil {
			r.Body.Close()
		}
		return err != nil
	})
	if err := echo(direct); err != nil {
		t.Errorf("nginx ended the socket, which the documentation denies: %v", err)
	}
}
