package web

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
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
		desk, gone := f.(*factory).desk, 0
		var feed *broken
		var shape cover.Cover
		handler := desk.handler(func(net.Addr) (cover.Enter, func()) {
			return func([]byte) (cover.Gauge, cover.Cover, error) { return feed, shape, nil }, func() { gone++ }
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
			if got := ask(unit(0)); !bytes.HasPrefix(got, m.behind[:]) || len(desk.stays) != 1 {
				t.Fatalf("after a hello the answer is %q, and there are %d stays", got, len(desk.stays))
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
		if gone != 3 || len(desk.stays) != 1 {
			t.Errorf("after three strangers %d are gone, and there are %d stays", gone, len(desk.stays))
		}
		time.Sleep(stayPatience + time.Second)
		if gone != 4 || len(desk.stays) != 0 {
			t.Errorf("after a silence %d are gone, and there are %d stays", gone, len(desk.stays))
		}
		second := enter()
		feed.now = true
		if got := ask(second.shown() + "; " + unit(1)); bytes.HasPrefix(got, second.behind[:]) || gone != 5 || len(desk.stays) != 0 {
			t.Errorf("after the end of its link a client gets %q, %d are gone, and there are %d stays", got, gone, len(desk.stays))
		}
	})
}

// FuzzDesk gives the desk what strangers send.
func FuzzDesk(f *testing.F) {
	f.Add("192.0.2.1, 192.0.2.2", "AAAAAAAAAAA")
	f.Add("[::1%eth0]:1", "_v=")
	f.Fuzz(func(t *testing.T, from, cookie string) {
		d := newDesk(nil, "X-Forwarded-For")
		r := &http.Request{Header: http.Header{"X-Forwarded-For": {from}, "Cookie": {visitCookie + "=" + cookie}}}
		if a := d.visitor(r); a != nil && a.(*net.TCPAddr).IP == nil || d.find(r) != nil {
			t.Errorf("%q is %v", from, a)
		}
	})
}
