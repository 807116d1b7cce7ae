package web

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/cover"
)

// Only what the server in front of the bridge added says whose a request is.
func TestWhoseARequestIs(t *testing.T) {
	for _, c := range []struct {
		header string
		said   []string
		want   string
	}{
		{"", []string{"192.0.2.1"}, "<nil>"},
		{"X-Forwarded-For", nil, "<nil>"},
		{"X-Forwarded-For", []string{"192.0.2.1"}, "192.0.2.1:0"},
		{"x-forwarded-for", []string{"203.0.113.9, 203.0.113.8, 192.0.2.1"}, "192.0.2.1:0"},
		{"X-Forwarded-For", []string{"203.0.113.9", "203.0.113.8,2001:db8::1"}, "[2001:db8::1]:0"},
		{"X-Forwarded-For", []string{"[2001:db8::1]"}, "[2001:db8::1]:0"},
		{"X-Forwarded-For", []string{"[2001:db8::1]:443"}, "[2001:db8::1]:443"},
		{"X-Forwarded-For", []string{"192.0.2.1, "}, "<nil>"},
		{"X-Forwarded-For", []string{"unknown"}, "<nil>"},
	} {
		r := &http.Request{Header: http.Header{"X-Forwarded-For": c.said}}
		got := "<nil>"
		if a := newDesk(nil, c.header).visitor(r); a != nil {
			got = a.String()
		}
		if got != c.want {
			t.Errorf("%s: %q is %s, want %s", c.header, c.said, got, c.want)
		}
	}
}

// broken is a feed that takes nothing more once it is.
type broken struct {
	*veiled
	now bool
}

func (b *broken) Take(p []byte) error {
	if b.now {
		return errors.New("broken")
	}
	return b.veiled.Take(p)
}

// A client's requests are known by their cookie, by whichever connection they come, until it asks for nothing for long or its link is over.
func TestStaysAtTheDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		args := map[string]string{"site": siteFile(t)}
		f, err := cover.New(NameTLS, cover.Options{Bridge: true, Front: cover.Front{Behind: true}, Args: args})
		if err != nil {
			t.Fatal(err)
		}
		client, err := cover.New(NameTLS, cover.Options{Args: args})
		if err != nil {
			t.Fatal(err)
		}
		desk := f.(*factory).desk
		var left atomic.Int32
		counts := func() (gone, stays int) { // timers end stays
			synctest.Wait()
			desk.mu.Lock()
			defer desk.mu.Unlock()
			return int(left.Load()), len(desk.stays)
		}
		var feed *broken
		var shape cover.Cover
		handler := desk.handler(func(net.Addr) (cover.Enter, func()) {
			return func([]byte) (cover.Gauge, cover.Cover, error) { return feed, shape, nil }, func() { left.Add(1) }
		})
		ask := func(cookie string) []byte {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/watch", nil)
			r.Header.Set("Cookie", cookie)
			handler.ServeHTTP(w, r)
			return w.Body.Bytes()
		}
		unit := func(number byte) string {
			return hiddenCookie + "=" + base64.RawURLEncoding.EncodeToString(append([]byte{0, 0, 0, number}, make([]byte, 100)...))
		}
		enter := func() marks {
			c, parameters, err := client.Client()
			if err != nil {
				t.Fatal(err)
			}
			if shape, err = f.Server(parameters); err != nil {
				t.Fatal(err)
			}
			feed = &broken{veiled: newVeiled(2, 1)}
			m := c.(*tab).marks
			got := ask(unit(0))
			if _, stays := counts(); !bytes.HasPrefix(got, m.behind[:]) || stays != 1 {
				t.Fatalf("after a hello the answer is %q, and there are %d stays", got, stays)
			}
			return m
		}
		first := enter()
		for range 3 {
			time.Sleep(stayPatience - time.Second)
			if got := ask(first.shown()); !bytes.HasPrefix(got, first.behind[:]) {
				t.Errorf("a client gets %q", got)
			}
		}
		other := newMarks(make([]byte, headKey))
		for _, cookie := range []string{"a=b", visitCookie + "=x", other.shown()} {
			if got := ask(cookie); bytes.HasPrefix(got, first.behind[:]) || !bytes.Contains(got, []byte("<title>Watch")) {
				t.Errorf("with the cookie %s a stranger gets %q", cookie, got)
			}
		}
		if gone, stays := counts(); gone != 3 || stays != 1 {
			t.Errorf("after three strangers %d are gone, and there are %d stays", gone, stays)
		}
		time.Sleep(stayPatience + time.Second)
		if gone, stays := counts(); gone != 4 || stays != 0 {
			t.Errorf("after a silence %d are gone, and there are %d stays", gone, stays)
		}
		second := enter()
		feed.now = true
		got := ask(second.shown() + "; " + unit(1))
		if gone, stays := counts(); bytes.HasPrefix(got, second.behind[:]) || gone != 5 || stays != 0 {
			t.Errorf("after the end of its link a client gets %q, %d are gone, and there are %d stays", got, gone, stays)
		}
	})
}

// FuzzDesk gives the desk what strangers send. They do not find a client's stay without its cookie, and what a visitor says of herself, before what
// the other server adds, does not count.
func FuzzDesk(f *testing.F) {
	m := newMarks(make([]byte, headKey))
	_, own, _ := strings.Cut(m.shown(), "=")
	f.Add("192.0.2.1, 192.0.2.2", "AAAAAAAAAAA")
	f.Add("[::1%eth0]:1", "_v=")
	f.Add("2001:db8::1", own)
	f.Add("192.0.2.1,", own[:len(own)-1])
	f.Add("", own+"A")
	f.Add("192.0.2.1", "a; "+m.shown())
	f.Fuzz(func(t *testing.T, from, cookie string) {
		d := newDesk(nil, "X-Forwarded-For")
		client := &stay{id: m.visit, late: time.NewTimer(time.Hour)}
		defer client.late.Stop()
		d.stays[m.visit] = client
		r := &http.Request{Header: http.Header{"X-Forwarded-For": {from}, "Cookie": {visitCookie + "=" + cookie}}}
		said, _ := r.Cookie(visitCookie)
		if found := d.find(r); (found != nil) != (said != nil && said.Value == own) || found != nil && (found != client || client.busy != 1) {
			t.Errorf("with the cookie %q the stay is %+v", cookie, found)
		}
		if (&desk{stays: map[[markSize]byte]*stay{}}).find(r) != nil {
			t.Errorf("%q finds a stay where there is none", cookie)
		}
		a := d.visitor(r)
		if a != nil && a.(*net.TCPAddr).IP == nil {
			t.Errorf("%q is %v", from, a)
		}
		r.Header["X-Forwarded-For"] = []string{"198.51.100.1", "203.0.113.9, " + from}
		if b := d.visitor(r); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%q is %v, and %v behind what the visitor says", from, a, b)
		}
	})
}
