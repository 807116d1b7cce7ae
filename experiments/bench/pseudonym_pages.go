package bench

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// browserConnections are how many connections a browser has to a server of HTTP/1.1.
const browserConnections = 6

// visitPage fetches the page and then its objects at once, with connections of its own, as a browser with an empty cache does. It runs no script, so that the
// servers have the processor: the paper's client had 32 cores.
func (w way) visitPage(ctx context.Context) error {
	config := w.tls.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	t := &http.Transport{ForceAttemptHTTP2: true, MaxConnsPerHost: browserConnections, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		raw, err := w.dial(ctx)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, config)
		if err := c.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		return c, nil
	}}
	defer t.CloseIdleConnections()
	if err := w.page(ctx, t); err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, o := range pageObjects {
		kind := map[string]string{".css": "style", ".js": "script", ".svg": "image"}[filepath.Ext(o.name)]
		all.Go(func() error { return w.object(ctx, t, o.name, kind) })
	}
	return all.Wait()
}

// page fetches the page. With the page defence the browser's own request brings the first piece, and says how the Service Worker asks for the others.
func (w way) page(ctx context.Context, t *http.Transport) error {
	if w.pieces == 0 {
		_, err := w.get(ctx, t, pageName, nil)
		return err
	}
	h, err := w.get(ctx, t, pageName, map[string]string{"Service-Worker-Navigation-Preload": "true", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"})
	if err != nil {
		return err
	}
	var id string
	var count int
	if _, err := fmt.Sscan(h.Get("Heddle-Load"), &id, &count); err != nil {
		return fmt.Errorf("the answer for the page has the load %q: %w", h.Get("Heddle-Load"), err)
	}
	return w.rest(ctx, t, pageName, id, 1, count, "navigate document")
}

// object fetches an object of the page: in as many pieces as the Service Worker draws, if the way has the page defence.
func (w way) object(ctx context.Context, t *http.Transport, name, kind string) error {
	if w.pieces == 0 {
		_, err := w.get(ctx, t, name, nil)
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return w.rest(ctx, t, name, hex.EncodeToString(id[:]), 0, 1+mathrand.IntN(w.pieces), "no-cors "+kind)
}

// rest fetches the pieces of an object from one on, all at once. The Service Worker says in which mode and for what the browser asks.
func (w way) rest(ctx context.Context, t *http.Transport, name, id string, from, count int, purpose string) error {
	all, ctx := errgroup.WithContext(ctx)
	for i := from; i < count; i++ {
		all.Go(func() error {
			_, err := w.get(ctx, t, name, map[string]string{"Heddle-Piece": fmt.Sprintf("%s %d %04d %s", id, count, i, purpose)})
			return err
		})
	}
	return all.Wait()
}

// get fetches an object, or a piece of it if the way has the page defence, and returns the headers of the answer.
func (w way) get(ctx context.Context, t *http.Transport, name string, headers map[string]string) (http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.tls.ServerName+"/"+name+w.query, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	a, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if _, err = io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK || a.Header.Get("Heddle-Piece") == "" != (w.pieces == 0) {
		err = errors.Join(fmt.Errorf("%s of %s: %s", name, w.tls.ServerName, a.Status), err)
	}
	return a.Header, err
}

// pageRate counts visits of several clients.
func pageRate(ctx context.Context, w way, quick bool) ([]figure, error) {
	n, took, err := repeat(rateClients, quick, func() error { return w.visitPage(ctx) })
	return []figure{{"", "rate", "pages/s", n / took.Seconds()}}, err
}
