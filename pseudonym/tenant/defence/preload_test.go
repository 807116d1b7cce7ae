package defence

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A browser's own request for a page is answered with the first piece of it, and with how the worker asks for the rest. The site learns who led there.
func TestPreload(t *testing.T) {
	for name, s := range strategies {
		var asked atomic.Int64
		var seen http.Header
		behind := site(&asked)
		d := New(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r.Header.Clone()
			behind(w, r)
		}))
		counts := map[string]bool{}
		for range 200 {
			asked.Store(0)
			w := visit(d, "alice", "/100000", func(r *http.Request) {
				for key, value := range map[string]string{preloadHeader: "true", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe", "Sec-Fetch-Site": "same-site"} {
					r.Header.Set(key, value)
				}
			})
			load := strings.Fields(w.Header().Get(loadHeader))
			if len(load) != 2 {
				t.Fatalf("%s: %v", name, w.Header())
			}
			first := read(t, w)
			body, count := first.content, first.number
			if d.unit == 0 {
				fmt.Sscan(load[1], &count)
			}
			counts[load[1]] = true
			for i := 1; i < count; i++ {
				body = append(body, read(t, visit(d, "alice", "/100000", func(r *http.Request) {
					r.Header.Set(pieceHeader, fmt.Sprintf("%s %s %d navigate iframe", load[0], load[1], i))
				})).content...)
			}
			if string(body) != string(object(100_000)) || asked.Load() != 1 {
				t.Fatalf("%s: %d bytes in %d pieces, the site was asked %d times", name, len(body), count, asked.Load())
			}
			if seen.Get("Sec-Fetch-Site") != "same-site" || seen.Get("Sec-Fetch-Dest") != "iframe" || seen.Get(preloadHeader) != "" {
				t.Errorf("%s: the site sees %v", name, seen)
			}
		}
		if want := s.Most(); len(counts) != want {
			t.Errorf("%s: pages came in %v", name, counts)
		}
	}
}
