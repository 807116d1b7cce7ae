package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/web"
)

const noDatabase = "its database does not answer"

// The database is gone, and a store that never saw a person tells her the reason: as JSON, and on a page with its style. Nobody else gets so far, and
// nobody further.
func TestStoreWithoutItsDatabase(t *testing.T) {
	database := pgtest.Start(t)
	at := database.Database(t)
	s := newShop(t, func(o *cloud.Options) { o.Database = at })
	known, revoked := s.client(t), s.client(t)
	for _, c := range []*Client{known, revoked} {
		if _, err := c.Get(t.Context(), "news.example"); err != nil {
			t.Fatal(err)
		}
	}
	if err := revoked.ask(t.Context(), http.MethodDelete, "/v1/pseudonyms/"+revoked.own.Name, nil, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	other := s.twin(t)
	database.Stop(t)
	for _, one := range []*shop{s, other} {
		known.o.Connect, revoked.o.Connect = one.at, one.at
		for name, do := range map[string]func() error{
			"registers": func() error { _, err := known.Get(t.Context(), "shop.example"); return err },
			"renews":    func() error { _, err := known.Renew(t.Context(), "news.example"); return err },
			"revokes":   func() error { return known.Revoke(t.Context(), "news.example") },
		} {
			if err := do(); err == nil || !strings.Contains(err.Error(), noDatabase) || errhint.Of(err) != "try again later" {
				t.Errorf("%s: %v", name, err)
			}
		}
		for path, want := range map[string]string{"/": noDatabase, "/get": noDatabase, web.StylePath: "font"} {
			if status, text := known.open(t, path, known.own.URL); !strings.Contains(text, want) || (status == http.StatusServiceUnavailable) != (want == noDatabase) {
				t.Errorf("%s: %d %s", path, status, text)
			}
		}
		if status, text := known.open(t, "/", revoked.own.URL); status != http.StatusNotFound || strings.Contains(text, noDatabase) {
			t.Errorf("without the capability: %d %s", status, text)
		}
		if err := revoked.Revoke(t.Context(), "news.example"); err == nil || strings.Contains(err.Error(), noDatabase) || !strings.Contains(errhint.Of(err), "may have ended") {
			t.Errorf("by a pseudonym that was revoked: %v, %s", err, errhint.Of(err))
		}
		mine, err := known.own.TLS()
		if err != nil {
			t.Fatal(err)
		}
		mine.ServerName = known.own.Name
		if err := handshake(one.at, mine); err != nil {
			t.Errorf("with her key: %v", err)
		}
		if mine.Certificates[0], err = tls.LoadX509KeyPair(revoked.own.Cert(), revoked.own.Key()); err != nil {
			t.Fatal(err)
		}
		if err := handshake(one.at, mine); err == nil {
			t.Error("somebody else's key is taken")
		}
	}
	database.Restart(t)
	polltest.Until(t, func() error { _, err := known.Renew(t.Context(), "news.example"); return err })
}

// twin is another process of the same store.
func (s *shop) twin(t *testing.T) *shop {
	t.Helper()
	return serveShop(t, &shop{dir: s.dir, roots: s.roots, o: s.o})
}

// open asks for a page of the store by the pseudonym of it, with the capability of a URL.
func (c *Client) open(t *testing.T, path, capability string) (status int, text string) {
	t.Helper()
	at, err := url.Parse(c.own.URL)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := url.Parse(capability)
	if err != nil {
		t.Fatal(err)
	}
	at.Path, at.RawQuery = path, shown.RawQuery
	config, err := c.own.TLS()
	if err != nil {
		t.Fatal(err)
	}
	by := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, c.o.Connect)
	}}}
	defer by.CloseIdleConnections()
	r, err := by.Get(at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// handshake fails unless the server takes the client's certificate, which it says after the client's last message.
func handshake(at string, config *tls.Config) error {
	c, err := tls.Dial("tcp", at, config)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(polltest.Patience))
	n, err := c.Read(make([]byte, 1))
	if n > 0 {
		return nil
	}
	return errors.Join(errors.New("no answer"), err)
}
