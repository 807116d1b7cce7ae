package collect

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tree makes packages with pages, each with styles and scripts that make it large enough.
func tree(t *testing.T, packages, pages int) string {
	t.Helper()
	root := t.TempDir()
	for p := range packages {
		dir := filepath.Join(root, "doc", fmt.Sprintf("Package+%d", p), "html")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := "<!DOCTYPE html><title>t</title>"
		for i := range minParts {
			name := fmt.Sprintf("part-%d%s", i, []string{".js", ".css"}[i%2])
			write(t, filepath.Join(dir, name), "/*"+strings.Repeat("x", minBytes/minParts)+"*/")
			text += fmt.Sprintf([]string{`<script src="%s"></script>`, `<link rel="stylesheet" href="%s">`}[i%2], name)
		}
		for i := range pages {
			write(t, filepath.Join(dir, fmt.Sprintf("page-%d.html", i)), text+strings.Repeat("words ", 500))
		}
		write(t, filepath.Join(dir, "bare.html"), "<!DOCTYPE html><title>t</title>"+strings.Repeat("words ", 500))
		write(t, filepath.Join(dir, "moved.html"), text+`<meta http-equiv="refresh" content="0">`+strings.Repeat("words ", 500))
	}
	return root
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestChooseTakesFromAllPackages(t *testing.T) {
	c := Choice{Root: tree(t, 4, 3), Monitored: 3, Unmonitored: 7, Seed: 1}
	s, err := c.Choose()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
	monitored, packages, pages := 0, map[string]int{}, map[string]bool{}
	for _, site := range s.Site {
		if site.Monitored {
			monitored++
		}
		packages[strings.Split(site.Page, "/")[1]]++
		pages[site.Page] = true
		if strings.Contains(site.Page, "bare") || strings.Contains(site.Page, "moved") {
			t.Errorf("%s is not fit", site.Page)
		}
	}
	if monitored != 3 || len(s.Site) != 10 || len(packages) != 4 || len(pages) != 10 {
		t.Errorf("%d monitored of %d, from %v", monitored, len(s.Site), packages)
	}
	again, err := c.Choose()
	if err != nil || fmt.Sprint(again) != fmt.Sprint(s) {
		t.Errorf("the same seed chose otherwise: %v", err)
	}
	if c.Unmonitored = 10; len(s.Site) > 0 {
		if _, err := c.Choose(); err == nil || !strings.Contains(err.Error(), "13 are wanted, and 12 are fit") {
			t.Errorf("too many: %v", err)
		}
	}
}

func TestSitesFile(t *testing.T) {
	root := tree(t, 1, 1)
	good := Site{Name: "a-1", Page: "doc/Package+0/html/page-0.html", Protocol: HTTP3, Latency: Duration{20 * time.Millisecond}}
	file := filepath.Join(t.TempDir(), "sites.json")
	other := good
	other.Name, other.Monitored = "a-2", true
	var text bytes.Buffer
	if err := (Sites{Root: root, Site: []Site{good, other}}).Write(&text); err != nil {
		t.Fatal(err)
	}
	write(t, file, text.String())
	back, err := ReadSites(file)
	if err != nil || len(back.Site) != 2 || back.Site[0] != good || back.Site[1] != other {
		t.Errorf("%v, %+v", err, back)
	}
	for want, change := range map[string]func(*Sites){
		"there are none":           func(s *Sites) { s.Site = nil },
		"no absolute path":         func(s *Sites) { s.Root = "share" },
		"two sites are called":     func(s *Sites) { s.Site = append(s.Site, s.Site[0]) },
		"a name is 1 to 60":        func(s *Sites) { s.Site[0].Name = "a.b" },
		"neither h3 nor h2":        func(s *Sites) { s.Site[0].Protocol = "h1" },
		"is not in 1ns to 1s":      func(s *Sites) { s.Site[0].Latency.Duration = 0 },
		"no path below the root":   func(s *Sites) { s.Site[0].Page = "../../etc/passwd" },
		"install the package that": func(s *Sites) { s.Site[0].Page = "doc/none.html" },
		"different latencies": func(s *Sites) {
			for i := range maxLatencies + 1 {
				more := good
				more.Name, more.Latency.Duration = fmt.Sprint("b", i), time.Duration(i+1)*time.Millisecond
				s.Site = append(s.Site, more)
			}
		},
	} {
		s := Sites{Root: root, Site: []Site{good}}
		change(&s)
		if err := s.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	write(t, file, `{"root": "/", "rot": 1}`)
	if _, err := ReadSites(file); err == nil || !strings.Contains(err.Error(), "rot") {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestWorldHasAnOriginForEachLatency(t *testing.T) {
	s := Sites{Site: []Site{
		{Latency: Duration{5e6}, Protocol: HTTP3}, {Latency: Duration{2e6}, Protocol: HTTP3},
		{Latency: Duration{2e6}, Protocol: HTTP2}, {Latency: Duration{5e6}, Protocol: HTTP3},
	}}
	origins := s.origins()
	if len(origins) != 3 || origins[0].latency != 2*time.Millisecond || origins[2] != (origin{5 * time.Millisecond, HTTP3}) {
		t.Fatalf("%v", origins)
	}
	w := plan(origins)
	if err := w.Validate(); err != nil {
		t.Error(err)
	}
}
