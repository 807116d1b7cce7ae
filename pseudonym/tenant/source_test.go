package tenant

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/store"
)

// A sidecar tells the store whom its site trusts, learns of the cloud's sites, and forgets what changed, again after each interruption.
func TestSourceFollowsTheStore(t *testing.T) {
	var told atomic.Pointer[[]string]
	var sites atomic.Pointer[[]string]
	sites.Store(&[]string{"news.example", "shop.example"})
	label, ends, lines := pseudonym.NewLabel(), make(chan bool), make(chan store.Changed)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+store.SitesPath, func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(*sites.Load()) })
	mux.HandleFunc("PUT "+store.TrustsPath, func(w http.ResponseWriter, r *http.Request) {
		var all []string
		if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
			t.Error(err)
		}
		told.Store(&all)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+store.ChangesPath, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "{}\n")
		json.NewEncoder(w).Encode(store.Changed{Label: &label})
		http.NewResponseController(w).Flush()
		for {
			select {
			case line := <-lines:
				json.NewEncoder(w).Encode(line)
				http.NewResponseController(w).Flush()
				continue
			case <-ends:
			case <-r.Context().Done():
			}
			return
		}
	})
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	s := newSource([]string{server.Listener.Addr().String()}, server.Client().Transport.(*http.Transport).TLSClientConfig, []string{"news.example"}, beats{time.Millisecond, polltest.Patience}, slog.New(slog.DiscardHandler)) // the store of this test does not beat
	if s.hosts("shop.example") {
		t.Error("a site is known before the store answered")
	}
	ctx, cancel := context.WithCancel(t.Context())
	forgotten, ended := make(chan pseudonym.Label, 16), make(chan bool)
	go func() {
		defer close(ended)
		s.follow(ctx, func(l pseudonym.Label) { forgotten <- l })
	}()
	for range 2 {
		for _, want := range []pseudonym.Label{"", label} {
			if got := <-forgotten; got != want {
				t.Errorf("forgot %q, want %q", got, want)
			}
		}
		if got := told.Load(); got == nil || !slices.Equal(*got, []string{"news.example"}) {
			t.Errorf("the store was told %v", got)
		}
		polltest.Await(t, "the sites", func() bool { return s.hosts((*sites.Load())[1]) })
		if s.hosts("elsewhere.example") {
			t.Error("a site of no cloud")
		}
		sites.Store(&[]string{"news.example", "new.example"})
		lines <- store.Changed{Label: new(pseudonym.Sites)}
		if got := <-forgotten; got != pseudonym.Sites {
			t.Errorf("forgot %q", got)
		}
		polltest.Await(t, "the site that was added", func() bool { return s.hosts("new.example") })
		told.Store(nil)
		sites.Store(&[]string{"news.example", "bank.example"})
		ends <- true // the store starts again
	}
	cancel()
	<-ended
}

// relay stands between a sidecar and its store until it falls silent, as a machine does that is gone.
type relay struct {
	net.Listener
	to     string
	used   atomic.Bool
	silent atomic.Bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: to}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			r.used.Store(true)
			go r.carry(t, c)
		}
	}()
	return r
}

func (r *relay) carry(t *testing.T, c net.Conn) {
	far, err := net.Dial("tcp", r.to)
	if err != nil {
		t.Error(err)
		return
	}
	one := func(to, from net.Conn) {
		defer far.Close()
		b := make([]byte, 4096)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if !r.silent.Load() {
				_, _ = to.Write(b[:n])
			}
		}
	}
	go one(c, far)
	one(far, c)
}

// The machine of a store is gone without a word. The sidecar goes to another store, maybe once more than it has to if this machine is busy.
func TestSourceLeavesASilentStore(t *testing.T) {
	often := beats{50 * time.Millisecond, 500 * time.Millisecond}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+store.SitesPath, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") })
	mux.HandleFunc("PUT "+store.TrustsPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET "+store.ChangesPath, func(w http.ResponseWriter, r *http.Request) {
		beat := time.NewTicker(often.every)
		defer beat.Stop()
		for r.Context().Err() == nil {
			io.WriteString(w, "{}\n")
			http.NewResponseController(w).Flush()
			select {
			case <-beat.C:
			case <-r.Context().Done():
			}
		}
	})
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer server.CloseClientConnections() // it waits for them
	one, two := newRelay(t, server.Listener.Addr().String()), newRelay(t, server.Listener.Addr().String())
	s := newSource([]string{one.Addr().String(), two.Addr().String()}, server.Client().Transport.(*http.Transport).TLSClientConfig, nil, often, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	followed, ended := make(chan bool, 16), make(chan bool)
	go func() {
		defer close(ended)
		s.follow(ctx, func(pseudonym.Label) { netutil.Offer(followed, true) })
	}()
	<-followed
	gone, other := one, two
	if two.used.Load() {
		gone, other = two, one
	}
	gone.Close()
	gone.silent.Store(true)
	polltest.Await(t, "the other store", other.used.Load)
	<-followed
	cancel()
	<-ended
}

// Without any site to trust the store forgets those of before.
func TestSourceTrustsNobody(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.URL.Path + " " + string(body)
	}))
	defer server.Close()
	s := newSource([]string{server.Listener.Addr().String()}, server.Client().Transport.(*http.Transport).TLSClientConfig, nil, storeBeats, slog.New(slog.DiscardHandler))
	if err := s.trust(t.Context()); err != nil {
		t.Fatal(err)
	}
	if said := <-got; said != "PUT "+store.TrustsPath+" []" {
		t.Error(said)
	}
}

// The first visitor's page has no link to a plain name, however early she comes.
func TestSitesAreKnownBeforeAVisit(t *testing.T) {
	l, away := pseudonym.NewLabel(), true
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+store.EntryPath+"{label}", func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(mutual.Entry{Label: l}) })
	mux.HandleFunc("GET "+store.SitesPath, func(w http.ResponseWriter, _ *http.Request) {
		if away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		json.NewEncoder(w).Encode([]string{"shop.example"})
	})
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	s := newSource([]string{server.Listener.Addr().String()}, server.Client().Transport.(*http.Transport).TLSClientConfig, nil, storeBeats, slog.New(slog.DiscardHandler))
	if e, err := s.Pseudonym(t.Context(), l); err == nil {
		t.Errorf("a visit without the sites: %+v", e)
	}
	away = false
	if e, err := s.Pseudonym(t.Context(), l); err != nil || e.Label != l || !s.hosts("shop.example") {
		t.Errorf("%+v, %v", e, err)
	}
}
