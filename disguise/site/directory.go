package site

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
)

// types are the media types by the names of files: those of the system differ between machines, and both ends need the same.
var types = map[string]string{".html": htmlType, ".htm": htmlType, ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
	".json": "application/json", ".map": "application/json", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".svg": "image/svg+xml", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2", ".pdf": "application/pdf",
	".mp4": "video/mp4", ".m4s": "video/iso.segment", ".txt": "text/plain", ".xml": "application/xml", ".swf": "application/x-shockwave-flash"}

// ReadDirectory makes a site of the files of a directory, such as a mirror. It follows no link, and leaves the directory by none. A page
// loads what its HTML refers to. Nothing is known of headers, cookies and times.
func ReadDirectory(name, origin string) (*Site, Skipped, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	b := newBuilder(origin)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			b.skipped["no regular file"]++
			return nil
		}
		return b.file(root, name)
	})
	if err != nil {
		return nil, nil, err
	}
	for _, name := range b.order {
		page := &b.pages[name].page
		for _, target := range loadsOf(b.site.Objects[page.Document].Body) {
			if number, found := b.site.find(b.objects, page.Document, target); found && number != page.Document && len(page.Loads) < maxLoads {
				page.Loads = append(page.Loads, Load{Object: number})
			}
		}
	}
	return b.finish()
}

func (b *builder) file(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, MaxBody+1))
	if err != nil {
		return err
	}
	if len(body) > MaxBody {
		b.skipped[tooLarge]++
		return nil
	}
	target := (&url.URL{Path: "/" + name}).EscapedPath()
	if path.Base(name) == "index.html" {
		target = strings.TrimSuffix(target, "index.html")
	}
	kind := types[strings.ToLower(path.Ext(name))]
	if kind == "" {
		kind = mediaType(http.DetectContentType(body))
	}
	o := &Object{Method: "GET", URL: target, Status: 200, Type: kind, Wire: -1, Size: int64(len(body)), Body: body, Header: []Field{}, Cookies: []Cookie{}}
	if o.check() != nil {
		b.skipped["out of bounds"]++
		return nil
	}
	number, err := b.add(o)
	if err != nil || kind != htmlType {
		return err
	}
	if len(b.order) == MaxPages {
		return errors.New("it has too many pages")
	}
	b.order = append(b.order, target)
	b.pages[target] = &visit{page: Page{Document: number, Loads: []Load{}, Links: []int{}}}
	return nil
}

// find returns the object to which a reference of another one leads.
func (s *Site) find(objects map[string]int, from int, reference string) (int, bool) {
	base, err := url.Parse(s.Origin + s.Objects[from].URL)
	if err != nil {
		return 0, false
	}
	target, err := base.Parse(reference)
	if err != nil || originOf(target) != s.Origin {
		return 0, false
	}
	number, found := objects["GET "+target.RequestURI()]
	return number, found
}

// link finds the links between the pages.
func (s *Site) link() {
	documents, objects := map[int]bool{}, s.numbers()
	for _, p := range s.Pages {
		documents[p.Document] = true
	}
	for i := range s.Pages {
		p := &s.Pages[i]
		for _, reference := range linksOf(s.Objects[p.Document].Body) {
			number, found := s.find(objects, p.Document, reference)
			if found && documents[number] && number != p.Document && len(p.Links) < maxLinks && !slices.Contains(p.Links, number) {
				p.Links = append(p.Links, number)
			}
		}
	}
}
