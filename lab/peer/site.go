package peer

import (
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of a site: enough pages to be realistic, and few to copy.
const (
	sitePages     = 40
	sitePageBytes = 1 << 20
)

// Site fills a new directory with HTML pages from /usr/share/doc, an index of them, and large.bin, an incompressible
// file of the given size that is always the same. It returns the names of the pages, index.html first.
func Site(dir string, large int64) ([]string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	pages := []string{"index.html"}
	index := "<!DOCTYPE html>\n<html lang=\"en\"><head><title>Pages</title></head><body><h1>Pages</h1>\n<ul>\n"
	for _, source := range docPages("/usr/share/doc") {
		page := strings.ReplaceAll(strings.TrimPrefix(source, "/usr/share/doc/"), "/", "-")
		if err := copyFile(filepath.Join(dir, page), source, 0o644); err != nil {
			return nil, err
		}
		index += fmt.Sprintf("<li><a href=\"%s\">%[1]s</a></li>\n", html.EscapeString(page))
		pages = append(pages, page)
	}
	index += "<li><a href=\"large.bin\">large.bin</a></li>\n</ul></body></html>\n"
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte(index), 0o644); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "large.bin"))
	if err != nil {
		return nil, err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), large)
	return pages, errors.Join(err, f.Close())
}

// docPages lists some HTML files below root. It skips unreadable files.
func docPages(root string) []string {
	var found []string
	filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(file, ".html") {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Size() > 0 && info.Size() <= sitePageBytes {
			if found = append(found, file); len(found) == sitePages {
				return fs.SkipAll
			}
		}
		return nil
	})
	return found
}

func copyFile(to, from string, mode fs.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}
