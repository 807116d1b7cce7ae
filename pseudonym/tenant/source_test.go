package tenant

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
		if got := <-forgotten; got != "" {
			t.Errorf("forgot %q, and not that it may miss some", got)
		}
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

// A store whose database is gone knows nothing, and another one may.
func TestSourceAsksAnotherStore(t *testing.T) {
	l, without, calls := pseudonym.NewLabel(), atomic.Bool{}, atomic.Int64{}
	with := http.NewServeMux()
	with.HandleFunc("GET "+store.EntryPath+"{label}", func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(mutual.Entry{Label: l}) })
	with.HandleFunc("GET "+store.SitesPath, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") })
	with.HandleFunc("POST "+store.EndedPath, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	var at []string
	var config *tls.Config
	for i := range 2 {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			if i == 1 || without.Load() {
				http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
				return
			}
			with.ServeHTTP(w, r)
		}))
		defer server.Close()
		at, config = append(at, server.Listener.Addr().String()), server.Client().Transport.(*http.Transport).TLSClientConfig
	}
	for range 8 { // it begins with either
		s := newSource(at, config, nil, storeBeats, slog.New(slog.DiscardHandler))
		if _, err := s.Pseudonym(t.Context(), l); err != nil {
			t.Error(err)
		}
		if ended, err := s.Ended(t.Context(), []pseudonym.Label{l}); err != nil || !slices.Equal(ended, []pseudonym.Label{l}) {
			t.Errorf("%v, %v", ended, err)
		}
	}
	without.Store(true)
	s := newSource(at, config, nil, storeBeats, slog.New(slog.DiscardHandler))
	if _, err := s.Pseudonym(t.Context(), l); !errors.Is(err, errDatabase) || errors.Is(err, mutual.ErrUnsure) {
		t.Errorf("no store has a database: %v", err)
	}
	if before := calls.Load(); s.look(t.Context()) == nil || calls.Load() > before+2 {
		t.Error("stores without a database are asked again and again")
	}
}

// stores are what a sidecar reaches: the first falls silent, and the second tells what it is asked.
type stores struct {
	begin  time.Time
	silent time.Duration // since the begin: the first store, and all if there is no second one
	second bool
	entry  *mutual.Entry // revoked once the first store is silent
}

func (s *stores) RoundTrip(r *http.Request) (*http.Response, error) {
	answers := func() bool { return time.Since(s.begin) < s.silent || s.second }
	if !answers() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	first := time.Since(s.begin) < s.silent
	body, status := io.Reader(strings.NewReader("[]")), http.StatusOK
	switch {
	case r.URL.Path == store.ChangesPath:
		out, in := io.Pipe()
		go func() {
			defer in.CloseWithError(io.ErrUnexpectedEOF)
			for r.Context().Err() == nil {
				if !first || time.Since(s.begin) < s.silent {
					io.WriteString(in, "{}\n")
				}
				_ = netutil.Sleep(r.Context(), store.BeatEvery)
			}
		}()
		body = out
	case strings.HasPrefix(r.URL.Path, store.EntryPath) && first:
		text, _ := json.Marshal(s.entry)
		body = bytes.NewReader(text)
	case strings.HasPrefix(r.URL.Path, store.EntryPath):
		status = http.StatusNotFound
	case r.URL.Path == store.EndedPath:
		text, _ := json.Marshal([]pseudonym.Label{s.entry.Label})
		body = bytes.NewReader(text)
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(body), Request: r}, nil
}

// The machine of a store falls silent at any time, and a pseudonym is revoked at another one. The sidecar learns of it in time, and admits nobody by it if it
// reaches no other store.
func TestRevocationAtAnotherStore(t *testing.T) {
	const within = 5 * time.Second
	k := newKeys(t)
	for _, second := range []bool{true, false} {
		for silent := time.Minute; silent < time.Minute+store.BeatEvery; silent += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				e := *k.Entry
				e.Left = int64(time.Hour / time.Second)
				begin := time.Now()
				s := newSource([]string{"one", "two"}, nil, nil, storeBeats, slog.New(slog.DiscardHandler))
				s.client.Transport = &stores{begin, silent, second, &e}
				names, err := mutual.NewServer(zone, s, 10)
				if err != nil {
					t.Fatal(err)
				}
				told := begin
				go s.follow(t.Context(), func(l pseudonym.Label) {
					if names.Forget(t.Context(), l); l == "" && time.Since(begin) > silent && told.Equal(begin) {
						told = time.Now()
					}
				})
				last := begin
				for time.Since(begin) < silent+time.Minute {
					if _, err := names.Pseudonym(t.Context(), tls.ConnectionState{ServerName: k.name}); err == nil {
						last = time.Now()
					}
					time.Sleep(50 * time.Millisecond)
				}
				if late := last.Sub(begin) - silent; late > within || late < -time.Second {
					t.Errorf("another store: %v; it was used for %v after it was revoked", second, late)
				}
				if late := told.Sub(begin) - silent; late < 0 || late > within {
					t.Errorf("another store: %v; open connections were looked at after %v", second, late)
				}
			})
		}
	}
}
