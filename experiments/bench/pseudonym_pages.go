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
	if err := w.object(ctx, t, pageName, "navigate document"); err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, o := range pageObjects {
		kind := map[string]string{".css": "style", ".js": "script", ".svg": "image"}[filepath.Ext(o.name)]
		all.Go(func() error { return w.object(ctx, t, o.name, "no-cors "+kind) })
	}
	return all.Wait()
}

// object fetches an object: in as many pieces as the page defence's Service Worker draws, if the way has that. A browser says in which mode and for what
// it fetches.
func (w way) object(ctx context.Context, t *http.Transport, name, purpose string) error {
	if w.pieces == 0 {
		return w.get(ctx, t, name, "")
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	count := 1 + mathrand.IntN(w.pieces)
	all, ctx := errgroup.WithContext(ctx)
	for i := range count {
		all.Go(func() error {
			return w.get(ctx, t, name, fmt.Sprintf("%s %d %04d %s", hex.EncodeToString(id[:]), count, i, purpose))
		})
	}
	return all.Wait()
}

// get fetches an object, or the piece of it that piece says.
func (w way) get(ctx context.Context, t *http.Transport, name, piece string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.tls.ServerName+"/"+name+w.query, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	if piece != "" {
		r.Header.Set("Heddle-Piece", piece)
	}
	a, err := t.RoundTrip(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if _, err = io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK || a.Header.Get("Heddle-Piece") == "" != (piece == "") {
		err = errors.Join(fmt.Errorf("%s of %s: %s", name, w.tls.ServerName, a.Status), err)
	}
	return err
}

// pageRate counts visits of several clients.
func pageRate(ctx context.Context, w way, quick bool) ([]figure, error) {
	n, took, err := repeat(rateClients, quick, func() error { return w.visitPage(ctx) })
	return []figure{{"", "rate", "pages/s", n / took.Seconds()}}, err
}
