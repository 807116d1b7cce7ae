package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

const (
	serverName = "www.example.com"
	relayAddr  = "127.0.0.1:4433"
	patience   = time.Minute // with a page that must load, on a busy machine
)

var server = netip.AddrPortFrom(lab.ServerAddr, 443)

func TestMain(m *testing.M) { labtest.Main(m) }

// gallery is a world with an HTTP/3 server, and pages on it.
type gallery struct {
	*lab.Instance
	t           *testing.T
	dir         string
	pages       []string
	certificate string

	mu    sync.Mutex
	conns map[*quic.Conn]map[netip.Addr]int // the client's addresses at each request, as the server saw them
}

func newGallery(t *testing.T) *gallery {
	t.Helper()
	if err := browser.Supported(); errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	in := labtest.Up(t, lab.ThreeWays())
	g := &gallery{Instance: in, t: t, dir: t.TempDir(), conns: map[*quic.Conn]map[netip.Addr]int{}}
	var err error
	if g.pages, err = makeGallery(filepath.Join(g.dir, "site")); err != nil {
		t.Fatal(err)
	}
	g.certificate = filepath.Join(g.dir, "certificate.pem")
	key := filepath.Join(g.dir, "key.pem")
	if err := peer.SelfSigned(g.certificate, key, []string{serverName}, nil); err != nil {
		t.Fatal(err)
	}
	g.serve(key)
	return g
}

// serve serves the pages over HTTP/3, and by nothing else: no fall-back to TCP can hide that QUIC failed.
func (g *gallery) serve(key string) {
	var socket net.PacketConn
	err := g.Host("server").Do(func() (err error) {
		socket, err = net.ListenPacket("udp", server.String())
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	type connKey struct{}
	files := http.FileServer(http.Dir(filepath.Join(g.dir, "site")))
	h3 := &http3.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.saw(r.Context().Value(connKey{}).(*quic.Conn))
			w.Header().Set("Cache-Control", "no-store") // each page brings all that it includes
			files.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	h3.TLSConfig, err = tlsConfig(g.certificate, key)
	if err != nil {
		g.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h3.Serve(socket) }()
	g.t.Cleanup(func() {
		h3.Close()
		socket.Close()
		<-done
	})
}

// saw notes where the client of a connection is at a request.
func (g *gallery) saw(c *quic.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns[c] == nil {
		g.conns[c] = map[netip.Addr]int{}
	}
	g.conns[c][c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()]++
}

// split starts `heddle split` in the client and waits until it listens.
func (g *gallery) split(args ...string) *peer.Process {
	g.t.Helper()
	p, err := peer.Start(g.t.Context(), g.Host("client"), labtest.Heddle,
		append([]string{"split", "--listen", relayAddr, "--to", server.String()}, args...)...)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(p.Stop)
	for end := time.Now().Add(time.Minute); !strings.Contains(p.Log(), "listening on"); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.Done():
			g.t.Fatalf("heddle split ended:\n%s", p.Log())
		default:
		}
		if time.Now().After(end) {
			g.t.Fatalf("heddle split does not listen:\n%s", p.Log())
		}
	}
	return p
}

// visit has Chromium load pages in the client.
func (g *gallery) visit(timeout time.Duration, contexts ...[]string) []browser.Page {
	g.t.Helper()
	pages, err := browser.Visit{Server: serverName + ":443", Relay: relayAddr, Certificate: g.certificate, Contexts: contexts,
		Timeout: timeout, Wants: []int{responses}}.Run(g.t.Context(), g.Host("client"))
	if err != nil {
		g.t.Fatal(err)
	}
	return pages
}

// responses are the page, two style sheets, the images, and the background.
const responses = 1 + 2 + galleryImages + 1

// whole says what is wrong with a page of the gallery, if anything is.
func whole(p browser.Page) error {
	var errs []error
	if p.Error != "" || len(p.Failed) > 0 {
		errs = append(errs, fmt.Errorf("%s %q", p.Error, p.Failed))
	}
	if len(p.Responses) != responses {
		errs = append(errs, fmt.Errorf("%d responses, not %d", len(p.Responses), responses))
	}
	for _, r := range p.Responses {
		if r.Protocol != "h3" || r.Bytes == 0 {
			errs = append(errs, fmt.Errorf("%s came by %q, %d bytes", r.URL, r.Protocol, r.Bytes))
		}
	}
	if len(p.Images) != galleryImages || p.Styles != 2 {
		errs = append(errs, fmt.Errorf("%d images and %d style sheets", len(p.Images), p.Styles))
	}
	for _, i := range p.Images {
		if !i.Complete || i.Size != i.Wanted {
			errs = append(errs, fmt.Errorf("%s is %s, not %s, complete: %v", i.URL, i.Size, i.Wanted, i.Complete))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", p.URL, errors.Join(errs...))
}
