package site

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	shippedFile = "../../dist/site-docs.db"
	mostShipped = 500_000 // bytes, of which each clone of the tree has all versions
)

// shipped is the site that comes with Heddle. lab/docsite/record makes it.
func shipped(t *testing.T) *Site {
	t.Helper()
	info, err := os.Stat(shippedFile)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostShipped {
		t.Errorf("it has %d bytes, more than %d", info.Size(), mostShipped)
	}
	s, err := Open(shippedFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Judges accept all objects of the site, and each type that a documentation site has carries something.
func TestCheckShippedSite(t *testing.T) {
	s := shipped(t)
	r, err := Check(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed > 0 {
		t.Errorf("%d objects are refused: %+v", r.Failed, r.Notices)
	}
	for _, o := range r.Objects {
		if len(o.Judges) == 0 || o.Fresh == "" {
			t.Errorf("%s has the judges %q, and is fresh: %q", o.URL, o.Judges, o.Fresh)
		}
	}
	for kind, least := range map[string]int{htmlType: 3_000, "application/json": 6_000, "image/png": 200_000} {
		i := slices.IndexFunc(r.Types, func(t TypeRoom) bool { return t.Type == kind })
		if i < 0 || r.Types[i].Capacity < least {
			t.Errorf("%s hides less than %d bytes: %+v", kind, least, r.Types)
		}
	}
	if !strings.Contains(s.About, "Apache-2.0") || s.Origin != "http://www.example" {
		t.Errorf("it is of %s: %s", s.Origin, s.About)
	}
}

// A visitor who follows the links and loads what the pages need finds all of it. Each page was visited twice, and none of it had failed.
func TestShippedSiteIsWhole(t *testing.T) {
	s := shipped(t)
	objects, visits := s.numbers(), map[int]int{}
	for _, p := range s.Pages {
		document := &s.Objects[p.Document]
		if document.Status == 404 {
			continue
		}
		visits[p.Document]++
		scripts := 0
		for _, l := range p.Loads {
			if o := &s.Objects[l.Object]; o.Status != 200 {
				t.Errorf("%s loads %s: %d", document.URL, o.URL, o.Status)
			} else if strings.HasPrefix(o.URL, "/api/") {
				scripts++
			}
		}
		if scripts != 5 {
			t.Errorf("the scripts of %s fetched %d objects", document.URL, scripts)
		}
		for _, reference := range slices.Concat(loadsOf(document.Body), linksOf(document.Body)) {
			u, err := url.Parse(reference)
			if err != nil {
				t.Fatal(err)
			}
			if u.Scheme == "https" && slices.Contains(linksOf(document.Body), reference) || u.Scheme == "data" {
				continue
			}
			if number, found := s.find(objects, p.Document, reference); !found || s.Objects[number].Status != 200 {
				t.Errorf("%s refers to %s, which is not there", document.URL, reference)
			}
		}
	}
	for document, n := range visits {
		if n != 2 {
			t.Errorf("%s was visited %d times", s.Objects[document].URL, n)
		}
	}
	if len(visits) < 15 {
		t.Errorf("it has %d pages", len(visits))
	}
}
