// Package lint holds the rules of the tree as tests. Nothing imports it.
package lint

import (
	"bytes"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../.."

// maxLines keeps a file to one subject.
const maxLines = 500

// files calls visit with each file that git tracks, or would. Without git it is each file but those of a build.
func files(t *testing.T, visit func(name string, text []byte)) {
	t.Helper()
	names := tracked()
	if names == nil {
		names = walked(t)
	}
	if len(names) < 50 {
		t.Fatalf("only %d files: is this the root of the tree?", len(names))
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !info.Mode().IsRegular() {
			continue // removed, and not yet committed
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		visit(name, text)
	}
}

func tracked() []string {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}

func walked(t *testing.T) []string {
	var names []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil {
			return err
		}
		switch name {
		case ".git", "bin", "dist/man":
			return filepath.SkipDir
		}
		if !d.IsDir() {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestGoFiles(t *testing.T) {
	files(t, func(name string, text []byte) {
		if filepath.Ext(name) != ".go" {
			return
		}
		if n := bytes.Count(text, []byte{'\n'}); n > maxLines {
			t.Errorf("%s has %d lines, more than %d: it has more than one subject", name, n, maxLines)
		}
		formatted, err := format.Source(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(formatted, text) {
			t.Errorf("%s is not as gofmt would have it", name)
		}
	})
}

// What must not stand in any file. The words are written apart, so that this file does not hold them.
var banned = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`/wo` + `rk/|/fa` + `rm/|/ro` + `ot/\.`), "a path of one machine"},
	{regexp.MustCompile(`(?i)proxy\.gola` + `ng\.org|sum\.gola` + `ng\.org|pyp` + `i\.org|pythonhos` + `ted\.org|deb\.deb` + `ian\.org|regis` + `try\.npmjs`),
		"the host of a package registry: whoever builds has settings for that"},
	{regexp.MustCompile(`(?m)^(<{7}|>{7}) `), "a conflict that git left"},
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`), "work that is not done"},
}

func TestNothingBanned(t *testing.T) {
	files(t, func(name string, text []byte) {
		if !utf8.Valid(text) || filepath.Base(name) == "go.sum" {
			return
		}
		for _, b := range banned {
			if at := b.pattern.FindIndex(text); at != nil {
				t.Errorf("%s:%d: %q: %s", name, bytes.Count(text[:at[0]], []byte{'\n'})+1, text[at[0]:at[1]], b.why)
			}
		}
	})
}

func TestNoPrivateKeys(t *testing.T) {
	key := regexp.MustCompile(`(?m)^-----BEGIN [A-Z ]*PRIVATE KEY-----`)
	files(t, func(name string, text []byte) {
		if key.Match(text) {
			t.Errorf("%s holds a private key", name)
		}
	})
}

// A link that leads nowhere is a promise not kept.
func TestLinksInDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)|(?:src|srcset)="([^"]+)"`)
	files(t, func(name string, text []byte) {
		if filepath.Ext(name) != ".md" {
			return
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := m[1] + m[2]
			if strings.Contains(target, ":") {
				continue // elsewhere
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, target)
			}
		}
	})
}
