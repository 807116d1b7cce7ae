package bridge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"heddle/disguise/client"
	"heddle/disguise/cover"
	"heddle/disguise/cover/web"
	"heddle/disguise/cover/web/webtest"
	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/lab/peer"
	"heddle/path"
)

// behind is a bridge behind a web server of Debian's, and the options of its clients.
type behind struct {
	*setup
	front  peer.Front
	server *peer.Process
	o      client.Options
	args   map[string]string // of the clients' cover
}

// fronts are the web servers as the guide says to configure them.
var fronts = map[string]peer.Front{"nginx": {}, "Caddy": {Caddy: true}}

func startBehind(t testing.TB, server peer.Front, front cover.Front, edit func(*Options)) *behind {
	t.Helper()
	dir := t.TempDir()
	site := filepath.Join(dir, "site.db")
	if err := webtest.Site().Write(site); err != nil {
		t.Fatal(err)
	}
	certificate, key, pin := certified(t, dir)
	factory := func(o cover.Options) cover.Factory {
		f, err := cover.New(web.NameTLS, o)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	front.Behind = true
	b := &behind{setup: start(t, func(o *Options) {
		o.Behind = true
		o.Covers = map[byte]cover.Factory{web.NumberTLS: factory(cover.Options{Seed: o.Key[:], Bridge: true, Front: front, Args: map[string]string{"site": site}})}
		edit(o)
	})}
	b.front = peer.Front{Listen: tcptest.Nobody(t), To: "http://" + b.at.String(), Certificate: certificate, Key: key, Work: dir, Plain: server.Plain, Caddy: server.Caddy}
	b.pass()
	b.o = b.options()
	b.o.Line.Address, b.o.Connections = b.front.Listen, 1
	b.args = map[string]string{"site": site, "pin": pin}
	b.o.Covers = only(factory(cover.Options{Seed: b.line.Key[:], Args: b.args}))
	return b
}

// pass starts the web server.
func (b *behind) pass() {
	b.t.Helper()
	var err error
	if b.server, err = b.front.Start(b.t.Context(), nil); errors.Is(err, peer.ErrMissing) {
		b.t.Skip("typed skip:", err)
	} else if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(b.server.Stop)
}

// visit asks the web server for a page as a stranger, by HTTP/2. server is how it calls itself.
func (b *behind) visit(page string) (status int, text, server string) {
	b.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(b.t.Context(), "GET", "https://"+b.front.Listen.String()+page, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.ProtoMajor != 2 {
		b.t.Errorf("%s: %s, %v", page, answer.Proto, err)
	}
	return answer.StatusCode, string(body), answer.Header.Get("Server")
}

// Links go through a web server: nginx and Caddy as the guide says to configure them, and nginx as it is by itself, which makes a connection for each
// request and holds answers back. Their requests share the web server's connections with those of strangers and of each other.
func TestLinksBehindAWebServer(t *testing.T) {
	servers := maps.Clone(fronts)
	servers["nginx by itself"] = peer.Front{Plain: true}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var from []string
			echo := to(tcptest.Serve(t, tcptest.Echo))
			b := startBehind(t, server, cover.Front{Visitor: "X-Forwarded-For"}, func(o *Options) {
				o.Target = func(ctx context.Context, client net.Addr) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					from = append(from, client.String())
					return echo(ctx, client)
				}
			})
			var work sync.WaitGroup
			for range 3 {
				work.Go(func() {
					o := b.o
					o.Connections = 2
					c, err := openLink(t, o)
					if err != nil {
						t.Error(err)
						return
					}
					exchange(t, c, 100_000)
					<-c.Done()
				})
			}
			for range 5 {
				if status, text, by := b.visit("/about"); status != 200 || !strings.Contains(text, "never changes") || !named(by, name) {
					t.Errorf("a stranger gets %d %q of %q", status, text, by)
				}
			}
			work.Wait()
			polltest.Await(t, "the links are forgotten", func() bool { return len(b.Status().Links) == 0 })
			want := "127.0.0.1:0"
			if server.Plain { // nginx says nothing of visitors
				want = ""
			}
			if !slices.Equal(from, []string{want, want, want}) {
				t.Errorf("the target was told of clients at %q", from)
			}
		})
	}
}

// named reports whether an answer is of the web server with a name.
func named(by, name string) bool {
	name, _, _ = strings.Cut(name, " ")
	return strings.HasPrefix(by, name)
}

// The oldest connections of a link go if there are many, since the bridge does not see when one ends.
func TestManyConnectionsBehindNginx(t *testing.T) {
	b := startBehind(t, fronts["nginx"], cover.Front{}, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	brief, err := cover.New(web.NameTLS, cover.Options{Seed: b.line.Key[:], Life: cover.Life{Bytes: 4000}, Args: b.args})
	if err != nil {
		t.Fatal(err)
	}
	b.o.Covers = only(brief)
	c := opened(t, b.o)
	exchange(t, c, 200_000)
	<-c.Done()
}

// All connections are those of nginx, at one address, so none goes for the sake of others.
func TestManyVisitorsBehindNginx(t *testing.T) {
	b := startBehind(t, fronts["nginx"], cover.Front{}, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	var all []*bufio.ReadWriter
	for range 2 * connlimit.Strangers.Network {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(b.at))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)))
	}
	for range 2 {
		for i, c := range all {
			fmt.Fprint(c, "GET /about HTTP/1.1\r\nHost: www.example\r\n\r\n")
			if err := c.Flush(); err != nil {
				t.Fatal(i, err)
			}
			r, err := http.ReadResponse(c.Reader, nil)
			if err != nil {
				t.Fatal(i, err)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != 200 {
				t.Fatal(i, r.Status, err)
			}
		}
	}
}

// A bridge that is gone is what the web server shows of any site that is: to visitors an error, and to clients no bridge. A link goes on when the web
// server, or a connection with it, is there again.
func TestFrontGoesAway(t *testing.T) {
	for name, server := range fronts {
		t.Run(name, func(t *testing.T) {
			b := startBehind(t, server, cover.Front{}, func(*Options) {})
			web := tcptest.Serve(t, tcptest.Echo)
			m, err := client.NewMany(b.o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			echoes := func() bool {
				c, err := m.Dial(t.Context(), path.At(web))
				if err != nil {
					return false
				}
				defer c.Close()
				got := make([]byte, 5)
				_, err = c.Write([]byte("hello"))
				_, readErr := io.ReadFull(c, got)
				return err == nil && readErr == nil && string(got) == "hello"
			}
			polltest.Await(t, "a stream", echoes)
			b.server.Stop()
			if c, err := client.Dial(t.Context(), b.o); err == nil {
				t.Error("a link without the web server", c)
			}
			b.pass()
			polltest.Await(t, "a stream after it came back", echoes)
			b.stop()
			if status, _, by := b.visit("/about"); status != http.StatusBadGateway || !named(by, name) {
				t.Errorf("without the bridge a stranger gets %d of %q", status, by)
			}
			if c, err := openLink(t, b.o); err == nil || !strings.Contains(err.Error(), "502 Bad Gateway") || !strings.Contains(errhint.Of(err), "behind it") {
				t.Error("without the bridge:", c, err)
			}
		})
	}
}
