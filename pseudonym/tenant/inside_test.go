package tenant

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

// A Go program serves pseudonyms by itself, without a sidecar.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "This is %s, and you are %s.\n", r.Host, r.RemoteAddr)
	})
	serve := func(ctx context.Context, store *tls.Config) error {
		s, err := New(Options{Zone: "cloud.example", Stores: []string{"192.0.2.1:4481"}, TLS: store, Site: mux, Size: 10_000, Log: slog.Default()})
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", ":4443")
		if err != nil {
			return err
		}
		return s.Serve(ctx, l)
	}
	_ = serve
}

// A handler in this process has what one behind a network has: names, addresses, uploads, events, WebSockets.
func TestSiteInThisProcess(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="https://%s/">%s`, r.Host, r.RemoteAddr)
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	more := make(chan bool)
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: first\n\n")
		http.NewResponseController(w).Flush()
		<-more
	})
	mux.Handle("/socket", websocket.Handler(func(c *websocket.Conn) { io.Copy(c, c) }))
	v := newVisit(t, Options{Site: mux}, "").start(t)
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		if _, text := v.get(t, c, "GET", "/", nil); text != `<a href="https://`+v.name+`/">127.0.0.1:0` {
			t.Errorf("%s: %q", protocol, text)
		}
		if _, text := v.get(t, c, "PUT", "/upload", strings.NewReader(strings.Repeat("x", 1<<20))); text != "1048576 <nil>" {
			t.Errorf("%s: %q", protocol, text)
		}
		r, err := c.Get("https://" + v.name + "/events")
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 11)
		if _, err := io.ReadFull(r.Body, first); err != nil || string(first) != "data: first" {
			t.Errorf("%s: %q, %v", protocol, first, err)
		}
		more <- true
		r.Body.Close()
	}
	c := v.socket(t, "/socket")
	io.WriteString(c, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if st := v.Status(); st.To != "http://inside" {
		t.Errorf("%+v", st)
	}
}
