package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The page is that of the paper: thirteen objects of 474.3 KiB, each of which the page names.
func TestPseudonymPage(t *testing.T) {
	dir := t.TempDir()
	if err := writePage(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, pageName))
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, o := range pageObjects {
		info, err := os.Stat(filepath.Join(dir, o.name))
		if err != nil || !strings.Contains(string(page), `"`+o.name+`"`) {
			t.Fatalf("%s: %v", o.name, err)
		}
		sum += info.Size()
	}
	const kib = 1024
	if len(pageObjects) != 13 || sum*10/kib != 4743 {
		t.Errorf("%d objects of %d bytes", len(pageObjects), sum)
	}
}

// Each case is compared with one that is measured in the same rounds, and each published figure and goal belongs to a case.
func TestPseudonymCases(t *testing.T) {
	published, goals := 0, 0
	for _, top := range Pseudonym().topologies(false) {
		if err := top.world.Validate(); err != nil {
			t.Error(err)
		}
		for _, v := range top.cases {
			base := top.compared(v)
			want := wayMutual
			if strings.HasPrefix(top.name, "page") || top.name == "home" {
				want = wayHTTPS
			}
			if i := strings.LastIndexByte(v.name, '/'); i >= 0 {
				want = v.name[:i+1] + want
			}
			if base.name != want || !slices.ContainsFunc(top.cases, func(o variant) bool { return o.name == want }) {
				t.Errorf("%s is compared with %s, not %s", top.caseName(v), base.name, want)
			}
			if pseudonymPaper(top.caseName(v)) != nil {
				published++
			}
			if pseudonymGoal(top.caseName(v)) != "" {
				goals++
			}
		}
	}
	if want := 3 + len(pseudonymSizes); published != 4 || goals != want {
		t.Errorf("%d cases have published figures, and %d have goals", published, goals)
	}
}
