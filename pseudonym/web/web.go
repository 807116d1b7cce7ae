// Package web has the pages that a cloud shows to people: of its store and its linker. They need no
// scripts, but for one that saves a person at a busy address some waiting.
package web

import (
	"embed"
	"io"
	"net/http"
	"time"

	"heddle/internal/markup"
	"heddle/pseudonym/work"
)

//go:embed style.css work.js
var files embed.FS

// StylePath is where the pages expect [Style].
const StylePath = "/style.css"

// Page is what a person sees.
type Page interface {
	title() string
	main(*markup.Page)
}

// Pseudonym is one row of a person's list.
type Pseudonym struct {
	Name, Site string
	URL        string // with the capability
	Ends       time.Time
	Ended      bool
}

// File is what a person saves. Its URL holds the content, so that no server keeps it.
type File struct {
	Name string
	URL  string
	For  string
}

// Pages.
type (
	// Home is the store's first page.
	Home struct {
		Zone  string
		Sites []string // to pick from
		Known bool     // she came by her pseudonym of the store, or logged in
		// Login says that she has to log in first, and Account that she did. Own offers a pseudonym of the store.
		Login, Account, Own bool

		Site string // that she wants, if a link said so
		All  []Pseudonym
	}
	// Made says what a person has to do with a new pseudonym.
	Made struct {
		Pseudonym
		Zone       string
		Limited    bool       // the root can vouch for names of the zone only
		Own        *Pseudonym // of the store, if it was made too
		NoOwn      string     // why it was not
		Files      []File
		Passphrase string
		Browser    string // one of [Browsers]
		Browsers   []Browser
	}
	// Work lets a script solve a puzzle, and then registers.
	Work struct {
		Site, Own string
		Puzzle    work.Puzzle
	}
	// Code is for a program of hers.
	Code struct{ Code string }
	// Revoke asks whether a pseudonym shall end.
	Revoke struct{ Pseudonym }
	// Message says one thing.
	Message struct{ Title, Text, Hint string }
	// GoOn asks whether a link shall lead to a site by its plain name.
	GoOn struct {
		Site   string
		URL    string
		Reason Reason
		Store  string // where to get a pseudonym
	}
)

// Reason is why a link does not lead to a pseudonym.
type Reason int

// Reasons.
const (
	NoCertificate Reason = iota // the browser did not show the cloud's certificate
	NotTrusted                  // the target does not trust the page with the link, or the page proved nothing
	NoPseudonym                 // of the target
)

// Write sends a page. Nothing of it is kept in a cache, shown in a frame, or told to other sites.
func Write(w http.ResponseWriter, status int, p Page) {
	policy := "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	if _, ok := p.(Work); ok {
		policy += "; script-src 'self'"
	}
	for key, value := range map[string]string{
		"Content-Type":                 "text/html; charset=utf-8",
		"Cache-Control":                "no-store",
		"Content-Security-Policy":      policy,
		"Referrer-Policy":              "same-origin",
		"X-Content-Type-Options":       "nosniff",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		w.Header().Set(key, value)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, whole(p)) // the client is gone if it fails
}

// Style serves the style sheet.
func Style(w http.ResponseWriter, r *http.Request) { serve(w, r, "style.css") }

// WorkPath is where the page of a puzzle expects [WorkScript].
const WorkPath = "/work.js"

// WorkScript serves the script that solves puzzles.
func WorkScript(w http.ResponseWriter, r *http.Request) { serve(w, r, "work.js") }

func serve(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	http.ServeFileFS(w, r, files, name)
}
