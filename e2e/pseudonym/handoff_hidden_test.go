package pseudonym

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/pseudonym/database"
	"heddle/pseudonym/ech"
)

// Connections with encrypted names move too, and the network sees no pseudonym. While clients connect another gateway makes the next key: those with the
// key before it go on, and the record has the new one.
func TestHandOffHidesThePseudonym(t *testing.T) {
	w, r, agent := movingWorld(t, lab.OpenCloud("cloud", "news"), (*world).serveAll)
	list := w.hello()
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"isp": "isp/client"})
	var visits atomic.Int64
	visit := func(list []byte) bool {
		page, state, err := w.fetch(r, list, byIPv4)
		if err != nil || page != text(news) || !state.ECHAccepted {
			t.Errorf("%q, %v\n%s", page, err, agent.Log())
			return false
		}
		visits.Add(1)
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	const n = 3
	for range n {
		clients.Go(func() {
			for ctx.Err() == nil && visit(list) {
			}
		})
	}
	more := func() {
		t.Helper()
		before := visits.Load()
		polltest.Await(t, "clients with the first key visit the site", func() bool { return visits.Load() >= before+2*n || t.Failed() })
	}
	more()
	w.nextKey()
	var next []byte
	polltest.Await(t, "the record has another key", func() bool {
		next = w.hello()
		return !bytes.Equal(next, list)
	})
	more()
	visit(next)
	cancel()
	clients.Wait()
	end()
	w.moved(float64(visits.Load()))
	if got := number(w, gatewayMetrics, "heddle_pseudonym_gateway_encrypted"); got != float64(visits.Load()) {
		t.Errorf("%v of %d connections are counted as encrypted", got, visits.Load())
	}
	unseen(t, dir, r.Name)
}

// nextKey has the database get the next key for encrypted names, as a gateway of the same cloud makes it.
func (w *world) nextKey() {
	w.t.Helper()
	secret, err := os.ReadFile(filepath.Join(w.dir, "gateway.key"))
	if err != nil {
		w.t.Fatal(err)
	}
	seal, err := database.NewSeal(secret)
	if err != nil {
		w.t.Fatal(err)
	}
	db, err := database.Open(w.t.Context(), filepath.Join(w.dir, "pseudonyms.db"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	all, err := db.Hellos(w.t.Context(), seal)
	if err != nil || len(all) != 1 {
		w.t.Fatal(len(all), err)
	}
	number := all[0].Number + 1
	key, err := ech.NewKey(uint8(number), "store."+zone, 40)
	if err != nil {
		w.t.Fatal(err)
	}
	private, err := key.Private()
	if err == nil { // of a minute ago, so that it is in DNS at once
		err = db.AddHello(w.t.Context(), seal, database.Hello{Number: number, Config: key.Config(), Private: private, Created: time.Now().Add(-time.Minute)})
	}
	if err != nil {
		w.t.Fatal(fmt.Errorf("the next key: %w", err))
	}
}
