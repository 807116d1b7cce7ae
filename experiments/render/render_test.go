package render

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

func skipWithout(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Pages of the website that comes with Heddle are as they were recorded.
func TestRun(t *testing.T) {
	skipWithout(t, browser.Supported())
	const website = "../../dist/site-docs.db"
	site, err := peer.RecordedWebsite(t.Context(), labtest.Heddle, website)
	if err != nil {
		t.Fatal(err)
	}
	targets := []string{"/", "/pseudonym"}
	rows, err := run(t.Context(), Options{Heddle: labtest.Heddle, Website: website, Loads: 3, Talk: t.Output()}, site.Host, targets)
	if err != nil || len(rows) != len(targets) {
		t.Fatalf("%+v, %v", rows, err)
	}
	for i, r := range rows {
		if r.Page != targets[i] || r.Loads != 2 || r.Wrong() > 0 || r.Varies {
			t.Errorf("%+v", r)
		}
	}
}

// What is wrong with a page is seen: errors that a script does not catch, those that it reports, and what does not load.
func TestFailures(t *testing.T) {
	skipWithout(t, browser.Supported())
	world := lab.Pair()
	world.Name = "render-fails"
	in, err := lab.Up(t.Context(), world, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Down(); err != nil {
			t.Error(err)
		}
	})
	server := in.Host("b")
	at := netip.AddrPortFrom(server.Addrs()[0], 8080)
	var l net.Listener
	if err := server.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("y", 1<<20) // more than a pipe holds
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><p class="a">Text<img src="/none.png?` + strings.Repeat("x", 50) + `"><script>console.error('said'); throw new Error('thrown')</script><p>` + long))
	})}
	go web.Serve(l) //nolint:errcheck // Close ends it
	t.Cleanup(func() { web.Close() })
	seen, err := browser.Visit{Server: "www.example:80", Plain: true, Relay: at.String(), Contexts: [][]string{{""}}, Timeout: patience, Idle: true, Shape: true}.Run(t.Context(), in.Host("a"))
	if err != nil || len(seen) != 1 {
		t.Fatalf("%+v, %v", seen, err)
	}
	got := slices.Sorted(maps.Keys(failures(seen[0])))
	for _, want := range []string{"said", "thrown", "http://www.example/none.png?...: 404"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not among %q", want, got)
		}
	}
	for _, want := range []string{"\nP class x\n", "\nIMG src 0x0\n", "\nText", long} {
		if !strings.Contains(seen[0].Shape, want) {
			t.Errorf("%.40q is not in %.400q", want, seen[0].Shape)
		}
	}
}

func TestCompare(t *testing.T) {
	token := strings.Repeat("a1", 30)
	var original, varying reference
	for _, p := range []browser.Page{{Shape: "A", Errors: []string{"old"}}, {Shape: "A", Failed: []string{"/x?" + token + ": 404"}}} {
		if err := errors.Join(original.add(p), varying.add(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := varying.add(browser.Page{Shape: "B"}); err != nil {
		t.Fatal(err)
	}
	if err := original.add(browser.Page{Error: "timeout"}); err == nil {
		t.Error("an original that does not load is taken")
	}
	for name, c := range map[string]struct {
		page          browser.Page
		errors, other int
	}{
		"the same":        {browser.Page{Shape: "A", Errors: []string{"old"}, Failed: []string{"/x?" + strings.Repeat("b2", 40) + ": 404"}}, 0, 0},
		"a new error":     {browser.Page{Shape: "A", Errors: []string{"new", "new"}}, 1, 0},
		"a new failure":   {browser.Page{Shape: "A", Failed: []string{"/y: 404"}}, 1, 0},
		"another shape":   {browser.Page{Shape: "B"}, 0, 1},
		"it did not load": {browser.Page{Error: "timeout"}, 1, 0},
	} {
		row := Row{Errors: map[string]int{}}
		original.compare(&row, c.page)
		if row.Loads != 1 || row.Wrong() != c.errors+c.other || row.Other != c.other || row.Varies {
			t.Errorf("%s: %+v", name, row)
		}
		row = Row{Errors: map[string]int{}}
		if varying.compare(&row, c.page); !row.Varies || row.Other != 0 || row.Wrong() != c.errors {
			t.Errorf("%s, of a page that varies: %+v", name, row)
		}
	}
}
