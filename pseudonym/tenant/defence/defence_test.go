package defence

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/polltest"
)

// visit asks for one thing as one visitor.
func visit(d *Defence, who, target string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	d.Serve(w, r, who)
	return w
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// part is one piece as the worker reads it.
type part struct {
	meta struct {
		Status  int
		Headers [][2]string
	}
	content []byte
	whole   bool // of an object that passes in one
	size    int  // with padding
	number  int  // that the header says
}

func read(t *testing.T, w *httptest.ResponseRecorder) (p part) {
	t.Helper()
	b := w.Body.Bytes()
	if w.Code != http.StatusOK || w.Header().Get(pieceHeader) == "" || len(b) < 8 {
		t.Fatalf("no piece: %d %s", w.Code, b[:min(len(b), 200)])
	}
	var err error
	if p.number, err = strconv.Atoi(w.Header().Get(pieceHeader)); err != nil {
		t.Fatal(err)
	}
	p.size = len(b)
	meta, length := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if err := json.Unmarshal(b[8:8+meta], &p.meta); err != nil {
		t.Fatal(err)
	}
	if p.whole = p.number == 0; p.whole != (length == unbounded) {
		t.Fatalf("a piece of %d bytes is one of %d", length, p.number)
	}
	if p.whole {
		p.content = b[8+meta:]
		return p
	}
	p.content = b[8+meta : 8+meta+length]
	if rest := b[8+meta+length:]; bytes.Count(rest, []byte{0}) != len(rest) {
		t.Error("the padding is not empty")
	}
	return p
}

// fetch gets an object in so many pieces, all at once as the worker does.
func fetch(t *testing.T, d *Defence, who, target string, count int) (parts []part) {
	t.Helper()
	id, got := newID(), make([]*httptest.ResponseRecorder, count)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			got[i] = visit(d, who, target, func(r *http.Request) {
				r.Header.Set(pieceHeader, fmt.Sprintf("%s %d %d no-cors image", id, count, i))
			})
		})
	}
	all.Wait()
	for _, w := range got {
		parts = append(parts, read(t, w))
	}
	return parts
}

// site is a server of objects of any size: /SIZE.
func site(asked *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		size := 0
		fmt.Sscanf(r.URL.Path, "/%d", &size)
		w.Header().Set("Content-Type", "image/png")
		w.Header().Add("X-Twice", "a")
		w.Header().Add("X-Twice", "b")
		http.SetCookie(w, &http.Cookie{Name: "n", Value: r.Header.Get("Sec-Fetch-Dest") + r.Header.Get(pieceHeader)})
		w.WriteHeader(http.StatusTeapot)
		w.Write(object(size))
	}
}

func object(size int) []byte { return bytes.Repeat([]byte("abcdefghij\n"), size/11+1)[:size] }

// The pieces of an object make it up again, the site is asked once, and sizes are what the strategy says.
func TestPieces(t *testing.T) {
	for name, c := range map[string]struct {
		counts []int
		sizes  func(int) bool
	}{
		"pieces":   {[]int{1, 2, 3}, func(n int) bool { return n%512 == 0 }},
		"pad-pow2": {[]int{1}, func(n int) bool { return n >= 1024 && n&(n-1) == 0 }},
	} {
		s, err := Parse(name)
		if err != nil || s.Most() != c.counts[len(c.counts)-1] {
			t.Fatal(name, s, err)
		}
		var asked atomic.Int64
		d := New(s, site(&asked))
		for _, size := range []int{0, 1, 2, 400, 511, 512, 513, 5000, 100_000, mostObject} {
			for _, count := range c.counts {
				asked.Store(0)
				var body []byte
				parts := fetch(t, d, "alice", fmt.Sprintf("/%d", size), count)
				for _, p := range parts {
					body = append(body, p.content...)
					if !c.sizes(p.size) || p.whole {
						t.Errorf("%s: %d bytes in %d: a piece of %d", name, size, count, p.size)
					}
					if p.meta.Status != http.StatusTeapot || fmt.Sprint(p.meta.Headers) == "[]" {
						t.Errorf("%s: %+v", name, p.meta)
					}
				}
				if !bytes.Equal(body, object(size)) || asked.Load() != 1 {
					t.Errorf("%s: %d bytes in %d: %d came, the site was asked %d times", name, size, count, len(body), asked.Load())
				}
			}
		}
		if cost := d.Cost(); cost.Sent <= cost.Content || cost.Pieces < cost.Objects || cost.Objects == 0 {
			t.Errorf("%s: %+v", name, cost)
		}
		empty(t, d)
	}
}

// empty awaits that nothing is held any more.
func empty(t *testing.T, d *Defence) {
	t.Helper()
	polltest.Await(t, "nothing is held", func() bool {
		left, held := d.waiting()
		return left == 0 && held == 0
	})
}

// waiting returns how many loads and bytes wait to be fetched.
func (d *Defence) waiting() (loads int, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room.mu.Lock()
	defer d.room.mu.Unlock()
	return len(d.loads) + len(d.room.of), d.room.held
}

// The real answer has the headers that a worker cannot set. The description has all others.
func TestHeaders(t *testing.T) {
	var asked atomic.Int64
	d := New(pieces{}, site(&asked))
	w := visit(d, "alice", "/10", func(r *http.Request) { r.Header.Set(pieceHeader, newID()+" 1 0 no-cors image") })
	p := read(t, w)
	if got := w.Header().Get("Set-Cookie"); got != "n=image" {
		t.Errorf("the cookie is %q", got)
	}
	if got := fmt.Sprint(p.meta.Headers); !strings.Contains(got, "[Content-Type image/png]") || !strings.Contains(got, "[X-Twice a] [X-Twice b]") || strings.Contains(got, "Cookie") {
		t.Errorf("the headers are %s", got)
	}
	if w.Header().Get("Content-Type") != "application/octet-stream" || w.Header().Get("X-Twice") != "" {
		t.Errorf("%v", w.Header())
	}
}

// A large object passes as it comes, and is never held.
func TestLargeObject(t *testing.T) {
	for _, count := range []int{1, 3} {
		first, more := make(chan bool), make(chan bool)
		d := New(pieces{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", "a=b")
			w.Write(object(mostObject))
			w.Write(object(1))
			close(first)
			<-more
			w.Write(object(mostObject))
		}))
		go func() {
			<-first
			close(more)
		}()
		var body []byte
		streams := 0
		for _, p := range fetch(t, d, "alice", "/", count) {
			if p.whole {
				streams++
				body = p.content
			} else if len(p.content) > 0 {
				t.Errorf("a piece of %d beside the whole", len(p.content))
			}
		}
		if want := len(object(mostObject))*2 + 1; streams != 1 || len(body) != want {
			t.Errorf("%d streams, %d bytes of %d", streams, len(body), want)
		}
		empty(t, d)
	}
}

// aborts reports whether an answer breaks off.
func aborts(f func()) (yes bool) {
	defer func() { yes = recover() == http.ErrAbortHandler }()
	f()
	return false
}

// An answer that breaks off breaks off for all pieces.
func TestBrokenObject(t *testing.T) {
	d := New(pieces{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(object(100))
		panic(http.ErrAbortHandler)
	}))
	id := newID()
	broken := 0
	for i := range 3 {
		if aborts(func() {
			visit(d, "alice", "/", func(r *http.Request) { r.Header.Set(pieceHeader, fmt.Sprintf("%s 3 %d x x", id, i)) })
		}) {
			broken++
		}
	}
	if broken != 3 {
		t.Errorf("%d of 3 pieces broke off", broken)
	}
	empty(t, d)
}

// One visitor does not get what another one loads, even by its identifier.
func TestVisitorsAreApart(t *testing.T) {
	var asked atomic.Int64
	d := New(pieces{}, site(&asked))
	id := newID()
	for i, who := range []string{"alice", "bob"} {
		visit(d, who, "/10", func(r *http.Request) { r.Header.Set(pieceHeader, fmt.Sprintf("%s 2 %d x x", id, i)) })
	}
	if asked.Load() != 2 {
		t.Errorf("the site was asked %d times", asked.Load())
	}
}

// Pieces that nobody fetches are dropped, and one visitor cannot fill the memory.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		d := New(pieces{}, site(&asked))
		ask := func(who string) int {
			return visit(d, who, "/1000", func(r *http.Request) { r.Header.Set(pieceHeader, newID()+" 2 0 x x") }).Code
		}
		for range mostOf {
			if code := ask("mallory"); code != http.StatusOK {
				t.Fatal(code)
			}
		}
		if code := ask("mallory"); code != http.StatusServiceUnavailable {
			t.Errorf("one more: %d", code)
		}
		if code := ask("alice"); code != http.StatusOK {
			t.Errorf("another visitor: %d", code)
		}
		if _, held := d.waiting(); held != (mostOf+1)*1000 {
			t.Errorf("%d bytes are held", held)
		}
		time.Sleep(keepFor)
		synctest.Wait()
		if left, held := d.waiting(); left != 0 || held != 0 {
			t.Errorf("%d loads, %d bytes", left, held)
		}
		d.room.enter("others")
		d.room.of["others"].held = mostHeldOf - mostHeld
		d.room.take("others", mostHeld-10)
		if !aborts(func() { ask("alice") }) {
			t.Error("an object for which there is no room came")
		}
		d.room.giveBack("others", mostHeld-10)
		d.room.leave("others")
		// Mallory's part is bounded, and costs others nothing.
		for range mostHeldOf / mostObject {
			visit(d, "mallory", fmt.Sprintf("/%d", mostObject), func(r *http.Request) { r.Header.Set(pieceHeader, newID()+" 2 0 x x") })
		}
		if !aborts(func() { ask("mallory") }) {
			t.Error("one visitor holds more than her part")
		}
		if code := ask("alice"); code != http.StatusOK {
			t.Errorf("another visitor: %d", code)
		}
		time.Sleep(keepFor)
		synctest.Wait()
		if left, held := d.waiting(); left != 0 || held != 0 {
			t.Errorf("%d loads, %d bytes", left, held)
		}
	})
}

// A visitor who goes away leaves the site's server in peace.
func TestVisitorGoesAway(t *testing.T) {
	ended := make(chan bool)
	d := New(pieces{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(ended)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		visit(d, "alice", "/", func(r *http.Request) {
			r.Header.Set(pieceHeader, newID()+" 2 0 x x")
			*r = *r.WithContext(ctx)
		})
	}()
	cancel()
	<-ended
}

func TestOddRequests(t *testing.T) {
	var asked atomic.Int64
	d := New(pieces{}, site(&asked))
	id := newID()
	for name, header := range map[string]string{"empty": " ", "short": id, "a long id": id + "0 1 0 x x", "no number": id + " x 0 x x", "none": id + " 0 0 x x", "units": id + " 0 1 pad x", "too many": id + " 17 0 x x",
		"beyond": id + " 3 3 x x", "negative": id + " 3 -1 x x", "more": id + " 1 0 x x x"} {
		if w := visit(d, "alice", "/10", func(r *http.Request) { r.Header.Set(pieceHeader, header) }); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	for _, again := range []string{" 2 0 x x", " 3 1 x x"} { // another number of pieces
		visit(d, "alice", "/10", func(r *http.Request) { r.Header.Set(pieceHeader, id+again) })
	}
	if asked.Load() != 1 {
		t.Errorf("the site was asked %d times", asked.Load())
	}
}

// A person who opens a page gets the worker first, with the same answer for all pages. All else passes.
func TestBoot(t *testing.T) {
	var asked atomic.Int64
	d := New(pieces{}, site(&asked))
	navigate := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
	}
	one, other := visit(d, "alice", "/1", navigate), visit(d, "bob", "/20000", navigate)
	if one.Code != http.StatusOK || one.Body.String() != other.Body.String() || fmt.Sprint(one.Header()) != fmt.Sprint(other.Header()) || asked.Load() != 0 {
		t.Errorf("%d %v", one.Code, one.Header())
	}
	if !strings.Contains(one.Body.String(), workerPath) || !strings.Contains(one.Body.String(), plainPath) {
		t.Error("the page lacks the worker or the way on")
	}
	worker := visit(d, "alice", workerPath, func(r *http.Request) { r.Header.Set("Service-Worker", "script") })
	if worker.Header().Get("Service-Worker-Allowed") != "/" || !strings.Contains(worker.Body.String(), "const MOST = 3 ") {
		t.Errorf("%v %s", worker.Header(), worker.Body.String()[:200])
	}
	plain := visit(d, "alice", plainPath+"?to=/1%3Fx", nil)
	if plain.Code != http.StatusSeeOther || plain.Header().Get("Location") != "/1?x" {
		t.Errorf("%d %v", plain.Code, plain.Header())
	}
	for _, to := range []string{"", "https://elsewhere.example/", "//elsewhere.example/", "/%5Celsewhere.example", "x"} {
		if got := visit(d, "alice", plainPath+"?to="+to, nil).Header().Get("Location"); got != "/" {
			t.Errorf("%q leads to %q", to, got)
		}
	}
	asked.Store(0)
	for name, edit := range map[string]func(*http.Request){
		"without the defence": func(r *http.Request) { navigate(r); r.AddCookie(plain.Result().Cookies()[0]) },
		"a form":              func(r *http.Request) { navigate(r); r.Method = http.MethodPost },
		"curl":                func(*http.Request) {},
		"events": func(r *http.Request) {
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("Sec-Fetch-Mode", "cors")
		},
	} {
		if w := visit(d, "alice", "/1", edit); w.Code != http.StatusTeapot || w.Body.String() != "a" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if asked.Load() != 4 {
		t.Errorf("the site was asked %d times", asked.Load())
	}
	if w := visit(d, "alice", "/sw.js", func(r *http.Request) { r.Header.Set("Service-Worker", "script") }); w.Code != http.StatusForbidden {
		t.Errorf("a worker of the site: %d", w.Code)
	}
}

// A site that asks for a password gets none by the worker, and its user learns why, and how to go on.
func TestPassword(t *testing.T) {
	d := New(pieces{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		w.Write(object(1000))
	}))
	ask := func(dest string) part {
		return read(t, visit(d, "alice", "/a?b=c&d", func(r *http.Request) { r.Header.Set(pieceHeader, newID()+" 1 0 navigate "+dest) }))
	}
	page := ask("document")
	if page.meta.Status != http.StatusUnauthorized || !bytes.Contains(page.content, []byte(`href="`+plainPath+`?to=%2Fa%3Fb%3Dc%26d"`)) || strings.Contains(fmt.Sprint(page.meta.Headers), "Basic") {
		t.Errorf("%+v %s", page.meta, page.content)
	}
	if image := ask("image"); !bytes.Equal(image.content, object(1000)) {
		t.Errorf("an image: %s", image.content)
	}
	empty(t, d)
}

func TestParse(t *testing.T) {
	if s, err := Parse(None); s != nil || err != nil {
		t.Error(s, err)
	}
	if _, err := Parse("magic"); err == nil || !strings.Contains(err.Error(), "magic") {
		t.Error(err)
	}
	for _, name := range Names() {
		s, err := Parse(name)
		if err != nil {
			t.Error(err)
		}
		for n := 0; s != nil && n < 5000; n++ {
			if s.Padded(n) < n {
				t.Fatalf("%s: %d bytes become %d", name, n, s.Padded(n))
			}
		}
	}
}

func FuzzPiece(f *testing.F) {
	f.Add("00000000000000000000000000000000 3 1 cors empty")
	f.Fuzz(func(t *testing.T, header string) {
		a, ok := parse(header)
		if ok && (len(a.id) != 32 || a.count < 0 || a.count > mostPieces || a.index < 0 || a.index >= a.count && a.count > 0) {
			t.Errorf("%q is %+v", header, a)
		}
	})
}
