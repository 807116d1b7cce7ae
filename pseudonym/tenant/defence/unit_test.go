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

// The sidecar learns how many units each page needs, so that the worker can mix units without content in. An answer with a page is as long as any
// other.
func TestPagesAreKnown(t *testing.T) {
	d := New(siteConstant{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/absent" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	ask := func(path, header string) string {
		w := visit(d, "alice", path, func(r *http.Request) { r.Header.Set(pieceHeader, newID()+header) })
		read(t, w)
		return w.Header().Get(pageHeader)
	}
	const document, image, none = " 0 0000 navigate document", " 0 0000 no-cors image", "0000 0032 0000"
	needs := func(number, units string) string { return " 0 " + units + " pad " + number }
	for i, c := range []struct{ path, header, want string }{
		{"/a", document, "0000 0032 0001"}, {"/a", document, "0000 0032 0001"}, {"/b", document, "0000 0032 0002"},
		{"/a", image, none}, {"/absent", document, none},
		{"/", needs("0001", "0005"), none}, {"/", needs("0001", "0003"), none}, {"/", needs("0000", "0009"), none}, {"/", needs("0003", "0009"), none}, {"/", needs("empty", "9"), none},
		{"/a?other", document, "0005 0032 0001"}, {"/b", document, "0000 0032 0002"},
		{"/", needs("0002", "9999"), "0000 0256 0000"}, {"/b", document, "0255 0256 0002"}, {"/a", document, "0005 0256 0001"},
	} {
		if got := ask(c.path, c.header); got != c.want {
			t.Errorf("step %d: %s, not %s", i, got, c.want)
		}
	}
	for n := 2; n < mostPages; n++ {
		d.pages.number(fmt.Sprint(n))
	}
	if got := ask("/c", document); got != "0000 0256 0000" {
		t.Errorf("a page beyond the bound: %s", got)
	}
	if got := ask("/b", document); got != "0255 0256 0002" {
		t.Errorf("a page within it: %s", got)
	}
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
