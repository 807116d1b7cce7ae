package collect

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"heddle/path"
)

// Choice selects the pages.
type Choice struct {
	Root                   string // directory of pages, which the sites serve
	Monitored, Unmonitored int    // number of pages of each kind
	Seed                   uint64 // repeats the choice while the same packages are installed
}

// A page needs enough content to be recognised, and must load in a second or two.
const (
	minBytes   = 100 << 10
	maxBytes   = 3 << 20
	minParts   = 5
	pageBytes  = 1 << 20
	scanFolder = 400 // HTML files read in one folder
	perPackage = 60  // candidates of one package, whose pages are similar
)

// One-way latencies of servers: of a content network, a country and a continent.
var latencies = []time.Duration{2, 5, 8, 12, 18, 25, 35, 50}

type candidate struct {
	page  string // below the root
	bytes int64  // with its parts
	parts int
}

// Choose takes pages with styles, scripts or pictures, from all packages in turn.
func (c Choice) Choose() (Sites, error) {
	s := Sites{Root: c.Root}
	groups, err := c.scan()
	if err != nil {
		return s, err
	}
	random := rand.New(rand.NewPCG(c.Seed, 1))
	names := slices.Sorted(maps.Keys(groups))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		pages := groups[name]
		random.Shuffle(len(pages), func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
		groups[name] = pages[:min(len(pages), perPackage)]
	}
	want := c.Monitored + c.Unmonitored
	for turn := 0; len(s.Site) < want; turn++ {
		took := false
		for i, name := range names {
			if turn < len(groups[name]) && len(s.Site) < want {
				took = true
				s.Site = append(s.Site, Site{Page: groups[name][turn].page, Name: siteName(name, turn),
					Protocol: []string{HTTP3, HTTP2}[i%2], Latency: Duration{latencies[(i/2)%len(latencies)] * time.Millisecond}})
			}
		}
		if !took {
			return s, &path.Error{What: "pages below " + c.Root, Why: fmt.Sprintf("%d are wanted, and %d are fit", want, len(s.Site)),
				Hint: "install packages with HTML, such as python-astropy-doc and gimp-help-en, or ask for fewer"}
		}
	}
	// Monitored pages come from all packages, like the others.
	for _, i := range random.Perm(want)[:c.Monitored] {
		s.Site[i].Monitored = true
	}
	slices.SortFunc(s.Site, func(a, b Site) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// siteName makes a site name from a package name.
func siteName(group string, turn int) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(group))
	return fmt.Sprintf("%s-%02d", strings.Trim(name[:min(len(name), 50)], "-"), turn)
}

// scan returns the suitable pages of each package: a folder below /usr/share/doc, /usr/share/gimp and so on.
func (c Choice) scan() (map[string][]candidate, error) {
	groups, seen := map[string][]candidate{}, map[string]int{}
	err := filepath.WalkDir(c.Root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			if file == c.Root {
				return err
			}
			return nil // skip unreadable files
		}
		if !entry.Type().IsRegular() || !strings.HasSuffix(file, ".html") {
			return nil
		}
		folder := filepath.Dir(file)
		if seen[folder]++; seen[folder] > scanFolder {
			return nil
		}
		page, err := filepath.Rel(c.Root, file)
		if err != nil {
			return err
		}
		parts := strings.Split(page, string(filepath.Separator))
		if len(parts) < 3 {
			return nil
		}
		if found, ok := c.look(page); ok {
			group := strings.Join(parts[:2], "-")
			if parts[0] == "doc" {
				group = parts[1]
			}
			groups[group] = append(groups[group], found)
		}
		return nil
	})
	if err != nil {
		return nil, &path.Error{What: "pages", Err: err}
	}
	return groups, nil
}

// look reads a page and finds the files that it includes.
func (c Choice) look(page string) (candidate, bool) {
	file := filepath.Join(c.Root, page)
	info, err := os.Stat(file)
	if err != nil || info.Size() > pageBytes || info.Size() < 2<<10 {
		return candidate{}, false
	}
	f, err := os.Open(file)
	if err != nil {
		return candidate{}, false
	}
	defer f.Close()
	out := candidate{page: filepath.ToSlash(page), bytes: info.Size()}
	had := map[string]bool{}
	for t := html.NewTokenizer(f); ; {
		kind := t.Next()
		if kind == html.ErrorToken {
			break
		}
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			continue
		}
		token := t.Token()
		if token.DataAtom == atom.Frameset || token.DataAtom == atom.Meta && attribute(token, "http-equiv") == "refresh" {
			return candidate{}, false
		}
		part := included(token)
		if part == "" || had[part] {
			continue
		}
		had[part] = true
		if size, ok := c.size(page, part); ok {
			out.parts++
			out.bytes += size
		}
	}
	return out, out.parts >= minParts && out.bytes >= minBytes && out.bytes <= maxBytes
}

// included returns the reference that a browser fetches for an element.
func included(t html.Token) string {
	switch t.DataAtom {
	case atom.Img, atom.Script:
		return attribute(t, "src")
	case atom.Link:
		if strings.Contains(attribute(t, "rel"), "stylesheet") {
			return attribute(t, "href")
		}
	}
	return ""
}

func attribute(t html.Token, key string) string {
	for _, a := range t.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// size returns the size of a file that a page refers to, if it is below the root.
func (c Choice) size(page, reference string) (int64, bool) {
	u, err := url.Parse(reference)
	if err != nil || u.IsAbs() || u.Host != "" || u.Path == "" {
		return 0, false
	}
	file := filepath.Join(c.Root, filepath.Dir(page), filepath.FromSlash(u.Path))
	if strings.HasPrefix(u.Path, "/") {
		file = filepath.Join(c.Root, filepath.FromSlash(u.Path))
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}
