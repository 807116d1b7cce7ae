package demo

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// runCloud runs the demo, and looks at what holds of all its kinds.
func runCloud(t *testing.T, o CloudOptions) CloudResult {
	t.Helper()
	plain, talk := options(t)
	o.Dir, o.Heddle, o.Talk = plain.Dir, plain.Heddle, talk
	r, err := RunCloud(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, talk)
	}
	all := []string{newsSite.name, clinicSite.name, shopSite.name}
	if !slices.Equal(r.Visited, all) || !slices.Equal(r.Plain.Sites, all) || len(r.Pseudonyms.Sites) > 0 {
		t.Errorf("visited %v, the observer names %v of plain visits and %v of pseudonyms", r.Visited, r.Plain.Sites, r.Pseudonyms.Sites)
	}
	for _, name := range all {
		for what, names := range map[string][]string{"DNS": r.Plain.DNS, "TLS": r.Plain.TLS, "certificates": r.Plain.Certificates} {
			if !slices.Contains(names, name) {
				t.Errorf("plain visits: %s has %v, without %s", what, names, name)
			}
		}
	}
	// The store by its name and by a pseudonym, the linker, and the three sites. Chromium may encrypt names in TLS: then the store's name is
	// in their place.
	least := 1
	if o.Terminal {
		least = 6
	}
	for what, names := range map[string][]string{"TLS": r.Pseudonyms.TLS, "certificates": r.Pseudonyms.Certificates} {
		if len(names) < least || len(names) > 6 || !slices.Contains(names, "store."+peer.CloudZone) ||
			slices.ContainsFunc(names, func(n string) bool { return !strings.HasSuffix(n, "."+peer.CloudZone) }) {
			t.Errorf("pseudonyms: %s has %v", what, names)
		}
	}
	if len(r.Plain.Servers) != len(all) || len(r.Pseudonyms.Servers) != 1 || len(r.Pseudonyms.DNS) < 4 {
		t.Errorf("servers %v and %v, looked up %v", r.Plain.Servers, r.Pseudonyms.Servers, r.Pseudonyms.DNS)
	}
	if r.Plain.Connections < len(all) || r.Plain.Bytes < 3000 || r.Pseudonyms.Bytes <= r.Plain.Bytes || len(r.Report.Baselines) != 1 {
		t.Errorf("%+v, %+v", r.Plain, r.Pseudonyms)
	}
	for _, file := range []string{r.Page, r.Details} {
		if page, err := os.ReadFile(file); err != nil || !bytes.Contains(page, []byte("</html>")) || !bytes.Contains(page, []byte(r.Pseudonyms.TLS[len(r.Pseudonyms.TLS)-1])) {
			t.Errorf("%s: %v, %d bytes", file, err, len(page))
		}
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "3 of 3") || !strings.Contains(text.String(), "0 of 3") {
		t.Errorf("%v: %s", err, text.String())
	}
	return r
}

func TestCloudOverLoopback(t *testing.T) {
	runCloud(t, CloudOptions{Loopback: true, Terminal: true})
}

func TestCloudByTerminal(t *testing.T) {
	labtest.Need(t)
	runCloud(t, CloudOptions{Terminal: true})
	leftNothing(t)
}

func TestCloudByBrowser(t *testing.T) {
	labtest.Need(t)
	if err := browser.UserSupported(); errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if r := runCloud(t, CloudOptions{}); r.Pseudonyms.Servers[0] != lab.CloudGateway.String() || !bytes.HasPrefix(r.picture, []byte("\x89PNG")) {
		t.Errorf("servers %v, a picture of %d bytes", r.Pseudonyms.Servers, len(r.picture))
	}
	leftNothing(t)
}

// A site's name is found however the observer got it.
func TestSitesIn(t *testing.T) {
	for content, want := range map[string][]string{
		"GET / HTTP/1.1\r\nHost: shop.example": {shopSite.name},
		"\x04news\x07example\x00":              {newsSite.name},
		"news, clinic and shop":                {},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "network.pcapng"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := sitesIn(dir, nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", content, got, err)
		}
		if got, err := sitesIn(dir, []string{clinicSite.name}); err != nil || !slices.Contains(got, clinicSite.name) {
			t.Errorf("%q and a certificate: %v, %v", content, got, err)
		}
	}
}
