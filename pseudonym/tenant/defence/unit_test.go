package defence

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Units of all objects have one size, and all pages one number of units: that of the page that needed most, up to a bound.
func TestSiteConstant(t *testing.T) {
	var asked atomic.Int64
	d := New(siteConstant{}, site(&asked))
	unit := func(header string) part {
		return read(t, visit(d, "alice", "/"+strings.Fields(header)[5], func(r *http.Request) { r.Header.Set(pieceHeader, strings.Join(strings.Fields(header)[:5], " ")) }))
	}
	for _, size := range []int{0, 1, constantUnit - 500, constantUnit, 100_000, mostObject} {
		asked.Store(0)
		id := newID()
		first := unit(fmt.Sprintf("%s 0 0 no-cors image %d", id, size))
		body := first.content
		for i := 1; i < first.number; i++ {
			p := unit(fmt.Sprintf("%s 0 %d no-cors image %d", id, i, size))
			body = append(body, p.content...)
			if p.size != constantUnit || p.number != first.number || p.meta.Status != 0 {
				t.Errorf("%d bytes: unit %d is %+v", size, i, p.meta)
			}
		}
		if first.size != constantUnit || first.meta.Status != http.StatusTeapot || !bytes.Equal(body, object(size)) || asked.Load() != 1 {
			t.Errorf("%d bytes: %d came in %d units of %d, the site was asked %d times", size, len(body), first.number, first.size, asked.Load())
		}
		empty(t, d)
	}
	for _, c := range []struct{ had, most int }{{3, leastPage}, {leastPage, leastPage + 1}, {5, leastPage + 1}, {1000, mostPage}, {7, mostPage}} {
		if p := unit(fmt.Sprintf("%s 0 %d pad empty 0", newID(), c.had)); p.size != constantUnit || p.number != c.most || len(p.content) > 0 {
			t.Errorf("after %d: %d, %d bytes", c.had, p.number, p.size)
		}
	}
	if w := visit(d, "alice", "/1", func(r *http.Request) { r.Header.Set(pieceHeader, newID()+" 2 0 no-cors image") }); w.Code != http.StatusBadRequest {
		t.Errorf("pieces of another strategy: %d", w.Code)
	}
	// An object whose headers alone would show does not come.
	d = New(siteConstant{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", constantUnit)) }))
	if !aborts(func() {
		visit(d, "alice", "/", func(r *http.Request) { r.Header.Set(pieceHeader, newID()+" 0 0 no-cors image") })
	}) {
		t.Error("it came")
	}
	empty(t, d)
}

// The costs of all strategies are those of what each one sends.
func TestCosts(t *testing.T) {
	var asked atomic.Int64
	for name, s := range strategies {
		if name == "pieces" {
			continue // it draws
		}
		d := New(s, site(&asked))
		count := 1
		if d.unit > 0 {
			count = 0
		}
		id := newID()
		for i, units := 0, 1; i < units; i++ {
			p := read(t, visit(d, "alice", "/100000", func(r *http.Request) { r.Header.Set(pieceHeader, fmt.Sprintf("%s %d %d x x", id, count, i)) }))
			units = p.number
		}
		if c := d.Cost(); c.Would[name] != c.Sent || c.Sent <= 100_000 || c.Would["pieces"] <= 100_000 || c.Would["pieces"] > 104_000 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
