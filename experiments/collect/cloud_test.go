package collect

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

func TestCloudOptions(t *testing.T) {
	o := CloudOptions{Options: Options{Out: "data/loads.parquet", Visits: 2, Jobs: 1, DryRun: true, Sites: Sites{Site: []Site{{Name: "a", Monitored: true}}}}, Cloud: CloudSites,
		Defences: []string{"none", "pad-pow2"}}
	all, err := RunCloud(t.Context(), o)
	if err != nil || len(all) != 2 || all[0].Out != "data/loads-none.parquet" || all[1].Out != "data/loads-pad-pow2.parquet" || all[1].Visits != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	o.Cloud = "clouds"
	if _, err := RunCloud(t.Context(), o); err == nil || !strings.Contains(err.Error(), "neither pages nor sites") {
		t.Errorf("another kind: %v", err)
	}
	w := cloudPlan()
	if err := w.Validate(); err != nil {
		t.Error(err)
	}
	if emulated := slices.IndexFunc(w.Links, func(l lab.LinkSpec) bool { return l.Emulated() }); emulated < 0 || w.Links[emulated].A.Host != "client" {
		t.Errorf("%+v", w.Links)
	}
}

// whole collects until no visit was late any more.
func whole(t *testing.T, talk *bytes.Buffer, run func() ([]Summary, error)) {
	t.Helper()
	for again := 0; ; again++ {
		all, err := run()
		if err != nil {
			t.Fatalf("%v\n%s", err, talk)
		}
		if !slices.ContainsFunc(all, func(s Summary) bool { return s.Failed > 0 }) {
			return
		}
		if again == 10 {
			t.Fatalf("%+v\n%s", all, talk)
		}
	}
}

// constantPage is the least that a page brings with the strategy site-constant, in bytes, if the visit lasts until it is padded.
const constantPage = 32 * 32 << 10

// Each page is loaded by a pseudonym and with the strategy, over several connections, and no other names are asked for.
func TestCollectsByPseudonymsAlone(t *testing.T) {
	if err := browser.UserSupported(); errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	site := func(page int) Site {
		return Site{Name: fmt.Sprint("page-", page), Page: fmt.Sprintf("doc/Package+0/html/page-%d.html", page), Protocol: HTTP2, Latency: Duration{time.Millisecond}, Monitored: true}
	}
	for _, kind := range []string{CloudPages, CloudSites} {
		t.Run(kind, func(t *testing.T) {
			var talk bytes.Buffer
			o := CloudOptions{Cloud: kind, Defences: []string{"none", "pad-pow2", "site-constant"}, Options: Options{Sites: Sites{Root: tree(t, 1, 2), Site: []Site{site(0), site(1)}},
				Visits: 1, Jobs: 1, Out: filepath.Join(t.TempDir(), "loads.parquet"), Heddle: labtest.Heddle, Talk: &talk}}
			whole(t, &talk, func() ([]Summary, error) { return RunCloud(t.Context(), o) })
			sent := map[string]int64{}
			for _, defence := range o.Defences {
				rows, err := parquet.ReadFile[observe.TraceRow](o.Of(defence))
				if err != nil || len(rows) != 2 {
					t.Fatalf("%v, %d rows", err, len(rows))
				}
				for _, r := range rows {
					down := int64(0)
					for _, size := range r.Size {
						down -= int64(min(size, 0))
					}
					if !strings.HasPrefix(r.Label, "page-") || r.Path != -1 || down < minBytes || len(r.Connection) != len(r.Size) {
						t.Errorf("%s: %s, path %d, %d bytes down", defence, r.Label, r.Path, down)
					}
					if defence == "site-constant" && down < constantPage {
						t.Errorf("%s: %s has %d bytes down", defence, r.Label, down)
					}
					sent[defence] += down
				}
			}
			if sent["pad-pow2"] < sent["none"]*5/4 {
				t.Errorf("bytes by strategy: %v", sent)
			}
		})
	}
}
