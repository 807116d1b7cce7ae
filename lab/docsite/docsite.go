// Package docsite is a website of documentation, from Markdown files and pictures. It does what today's sites of documentation do: its
// scripts restore a session by random tokens, fetch JSON that differs at each visit, and report the visit. Command record records it for
// web covers.
//
// Do not put it on a network: it keeps no session, and believes whatever it is told.
package docsite

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

var (
	//go:embed style.css
	style []byte
	//go:embed app.js
	script []byte
)

// leftOut are files that would make a recording large: tables, lists, and what is for few readers.
var leftOut = []string{"decisions.md", "disguise-wire.md", "evaluation.md", "reference.md", "results-comps.md", "results.md", "site-docs.md", "traces.md", "wire.md"}

// Site is the website. All its randomness comes from a seed, so it gives the same answers to the same requests in the same order.
type Site struct {
	pages []*page // the overview first
	files map[string]file
	shots map[string]*shot

	mu     sync.Mutex
	random *rand.ChaCha8
}

// file is the same at each visit.
type file struct {
	kind string
	body []byte
}

// New makes the site of a directory with Markdown files, and PNG and SVG files that they show.
func New(docs fs.FS, seed uint64) (*Site, error) {
	s := &Site{shots: map[string]*shot{}, random: source(seed, ""),
		files: map[string]file{"/style.css": {"text/css; charset=utf-8", style}, "/app.js": {"text/javascript; charset=utf-8", script}}}
	entries, err := fs.ReadDir(docs, ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() || slices.Contains(leftOut, e.Name()) {
			continue
		}
		switch path.Ext(e.Name()) {
		case ".md":
			names = append(names, e.Name())
		case ".png", ".svg":
			if err := s.addPicture(docs, e.Name(), seed); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name(), err)
			}
		}
	}
	for _, name := range names {
		text, err := fs.ReadFile(docs, name)
		if err != nil {
			return nil, err
		}
		p, err := render(name, text, names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.pages = append(s.pages, p)
	}
	for i := 1; i < len(s.pages); i += 2 {
		s.pages[i].content += s.teaser()
	}
	s.pages = append([]*page{overview(s.pages), s.gallery()}, s.pages...)
	return s, nil
}

// source makes the random source of a part of the site.
func source(seed uint64, of string) *rand.ChaCha8 {
	return rand.NewChaCha8(sha256.Sum256(fmt.Append(nil, "docsite ", seed, of)))
}

// Prepare makes the next n answers with each picture, which takes some tenths of a second for each. What comes after them is made when
// it is asked for.
func (s *Site) Prepare(n int) {
	var all sync.WaitGroup
	for _, picture := range s.shots {
		all.Go(func() { picture.prepare(n) })
	}
	all.Wait()
}

func (s *Site) addPicture(docs fs.FS, name string, seed uint64) error {
	body, err := fs.ReadFile(docs, name)
	if err != nil {
		return err
	}
	if path.Ext(name) == ".svg" {
		s.files[picturePath(name)] = file{"image/svg+xml", body}
		return nil
	}
	original, err := png.Decode(bytes.NewReader(body))
	if err != nil {
		return err
	}
	for _, f := range formats {
		target := formatted(picturePath(name), f)
		s.shots[target] = newShot(original, f, source(seed, target))
	}
	return nil
}

// Paths returns the paths of all pages.
func (s *Site) Paths() (all []string) {
	for _, p := range s.pages {
		all = append(all, p.path)
	}
	return all
}

// How long an answer may be kept. What is kept by nobody differs at each visit.
const (
	shared  = "public, max-age=3600"
	private = "private, no-cache"
	none    = "no-store"
)

// ServeHTTP implements [http.Handler].
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, mostReport))
	if f, found := s.files[r.URL.Path]; found {
		sum := sha256.Sum256(f.body)
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
		send(w, r, http.StatusOK, f.kind, shared, f.body)
		return
	}
	if picture, found := s.shots[r.URL.Path]; found {
		send(w, r, http.StatusOK, "image/png", private, picture.answer())
		return
	}
	if answer := s.api(r.Method, r.URL.Path); answer != nil {
		body, err := json.Marshal(answer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		send(w, r, http.StatusOK, "application/json", none, body)
		return
	}
	if i := slices.IndexFunc(s.pages, func(p *page) bool { return p.path == r.URL.Path }); i >= 0 {
		send(w, r, http.StatusOK, "text/html; charset=utf-8", private, s.document(s.pages[i]))
		return
	}
	send(w, r, http.StatusNotFound, "text/html; charset=utf-8", shared, []byte(lost))
}

// mostReport is how much of a request's body is read, in bytes.
const mostReport = 64 << 10

// send sends an answer, compressed if it is text and the browser takes that.
func send(w http.ResponseWriter, r *http.Request, status int, kind, keep string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", keep)
	if kind == "image/png" || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(body) // the browser has left if it fails
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	w.WriteHeader(status)
	packed := gzip.NewWriter(w)
	_, _ = packed.Write(body)
	_ = packed.Close()
}

// bytes returns random bytes.
func (s *Site) bytes(n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := make([]byte, n)
	_, _ = s.random.Read(b) // it never fails
	return b
}

// token returns random bytes in base64. It has a character that not every kind of base64 has, by which a reader knows which one it is.
func (s *Site) token(bytes int) string {
	for {
		if text := base64.StdEncoding.EncodeToString(s.bytes(bytes)); strings.ContainsAny(text, "+/") {
			return text
		}
	}
}
