package collect

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

const testSite = "../../disguise/cover/web/testdata/site.db"

func TestDisguiseOptions(t *testing.T) {
	o := DisguiseOptions{Options: Options{Out: "loads.parquet", Visits: 3, Jobs: 1, DryRun: true, Heddle: labtest.Heddle, Sites: Sites{Site: []Site{{Name: "a", Monitored: true}}}}, Ways: DisguiseWays(), Website: testSite}
	all, err := RunDisguise(t.Context(), o)
	if err != nil || len(all) != len(o.Ways) || all[1].Out != "loads-tor.parquet" || all[1].Visits != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, test := range []struct {
		ways          []string
		website, want string
	}{{[]string{"direct", "ftp"}, testSite, "--over ftp"}, {[]string{"tor", "website-http"}, "", "--website"}, {[]string{"https"}, "no.db", "no.db"}} {
		o.Ways, o.Website = test.ways, test.website
		if all, err := RunDisguise(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) || len(all) > 0 {
			t.Errorf("%v: %v, %v", test, all, err)
		}
	}
	o.Ways, o.Website = []string{"random", "embed"}, ""
	if _, err := RunDisguise(t.Context(), o); err != nil {
		t.Errorf("covers without a website: %v", err)
	}
	if err := disguisePlan().Validate(); err != nil {
		t.Error(err)
	}
}

// A visit holds the connections of its way and no others, from their beginnings. They begin with a request of HTTP or with a ClientHello of TLS.
func TestCollectsAsACensorSees(t *testing.T) {
	for _, supported := range []error{browser.Supported(), peer.TorSupported()} {
		if errors.Is(supported, peer.ErrMissing) {
			t.Skip(supported)
		}
	}
	var talk bytes.Buffer
	page := Site{Name: "page", Page: "doc/Package+0/html/page-0.html", Protocol: HTTP3, Latency: Duration{time.Millisecond}, Monitored: true}
	o := DisguiseOptions{Ways: []string{"direct", "http", "website-http", "website-https"}, Website: testSite, Captures: t.TempDir(), Options: Options{Sites: Sites{Root: tree(t, 1, 1), Site: []Site{page}},
		Visits: 1, Jobs: 1, Out: filepath.Join(t.TempDir(), "loads.parquet"), Heddle: labtest.Heddle, Talk: &talk}}
	whole(t, &talk, func() ([]Summary, error) { return RunDisguise(t.Context(), o) })
	for way, want := range map[string]struct {
		label string
		least int64
		first []string
	}{"direct": {"page", minBytes, []string{"\x16\x03\x01"}}, "http": {"page", minBytes, []string{"GET /", "POST /"}}, "website-http": {"/", 1000, []string{"GET /", "POST /"}},
		"website-https": {"/", 1000, []string{"\x16\x03\x01"}}} {
		rows, err := parquet.ReadFile[observe.TraceRow](o.Of(way))
		if err != nil || len(rows) != 1 {
			t.Fatalf("%s: %v, %d rows", way, err, len(rows))
		}
		r, down := rows[0], int64(0)
		for _, size := range r.Size {
			down -= int64(min(size, 0))
		}
		if r.Label != want.label || r.Monitored != (want.label == "page") || r.Path != -1 || down < want.least || len(r.Entropy) != len(r.Size) || len(r.Up) == 0 {
			t.Errorf("%s: %s, %d bytes down in %d connections", way, r.Label, down, len(r.Up))
		}
		if kept, err := os.Stat(filepath.Join(o.Captures, way, "page-0.pcapng")); err != nil || kept.Size() < down {
			t.Errorf("%s: its capture is not kept: %v", way, err)
		}
		for _, up := range r.Up {
			if !begins(up, want.first) {
				t.Errorf("%s: a connection begins with %.40q", way, up)
			}
		}
	}
	if _, err := RunDisguise(t.Context(), DisguiseOptions{Ways: []string{"direct"}, Keep: true, Options: o.Options}); err == nil || !strings.Contains(err.Error(), "another collection") {
		t.Error("the journal of other visits:", err)
	}
}

func begins(b []byte, with []string) bool {
	for _, s := range with {
		if bytes.HasPrefix(b, []byte(s)) {
			return true
		}
	}
	return len(b) == 0 // it was opened, and not used
}
