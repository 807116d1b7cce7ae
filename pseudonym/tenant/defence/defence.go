package defence

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
)

// The sidecar itself answers these paths. Sites have no use for them (RFC 8615).
const (
	workerPath = "/.well-known/heddle/worker.js"
	plainPath  = "/.well-known/heddle/plain"
)

// plainCookie says that the browser cannot use the defence, and its user goes on without.
const plainCookie = "__Host-heddle-plain"

//go:embed worker.js
var workerText string

//go:embed boot.html
var bootPage string

// bootPolicy permits the one script of the page.
var bootPolicy = func() string {
	script := regexp.MustCompile(`(?s)<script>(.*)</script>`).FindStringSubmatch(bootPage)[1]
	sum := sha256.Sum256([]byte(script))
	return "default-src 'none'; img-src data:; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// Defence answers for a site with a strategy. It is safe for concurrent use.
type Defence struct {
	strategy Strategy
	unit     int // of a [unitStrategy], else 0
	worker   string
	next     http.Handler

	mu    sync.Mutex
	loads map[loadKey]*load

	room room

	// page is how many units the page of the site that needed most had, with the one that asks for this number.
	page  atomic.Int64
	pages sitePages

	objects, pieces, content, sent atomic.Uint64
	would                          map[string]*atomic.Uint64 // be sent by each strategy
}

// Claim says in a line what the defence hides, and what it does not.
func (d *Defence) Claim() string {
	return "the first visit, before the browser has the worker, shows one page and one script, the same for all pages of the site; then " + d.strategy.Claim() +
		"; times, objects over 4 MiB, parts of objects, uploads, events and WebSockets show as they are, and so does all of users who go on without the defence"
}

// Numbers of units of a page. A page that needs more shows it; else one visitor could make all others load much.
const (
	leastPage = 32
	mostPage  = 256
)

// New returns a defence before a handler.
func New(s Strategy, next http.Handler) *Defence {
	d := &Defence{strategy: s, next: next, loads: map[loadKey]*load{}, room: room{of: map[string]*share{}}, pages: sitePages{numbers: map[string]int{}}, would: map[string]*atomic.Uint64{}}
	for name := range strategies {
		d.would[name] = &atomic.Uint64{}
	}
	if u, ok := s.(unitStrategy); ok {
		d.unit = u.Unit()
	}
	d.page.Store(leastPage)
	d.worker = strings.NewReplacer("const MOST = 1 ", fmt.Sprintf("const MOST = %d ", s.Most()), "const UNITS = false ", fmt.Sprintf("const UNITS = %t ", d.unit > 0)).Replace(workerText)
	return d
}

// Serve answers a request of a visitor, whom it knows by any name.
func (d *Defence) Serve(w http.ResponseWriter, r *http.Request, visitor string) {
	switch p := r.Header.Get(pieceHeader); {
	case r.URL.Path == workerPath:
		d.sendWorker(w)
	case r.URL.Path == plainPath:
		goPlain(w, r)
	case r.Header.Get("Service-Worker") == "script": // a worker of the site would take the place of ours
		http.Error(w, "this site has a Service Worker of its sidecar", http.StatusForbidden)
	case p != "":
		d.piece(w, r, visitor, p)
	case r.Method == http.MethodGet && r.Header.Get(preloadHeader) != "" && r.Header.Get("Sec-Fetch-Mode") == "navigate":
		d.preload(w, r, visitor)
	case opens(r):
		boot(w)
	default:
		d.next.ServeHTTP(w, r)
	}
}

// opens reports whether a person opens a page without the worker, which asks for pieces.
func opens(r *http.Request) bool {
	if r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
		return false
	}
	_, err := r.Cookie(plainCookie)
	return err != nil
}

func (d *Defence) sendWorker(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Service-Worker-Allowed", "/")
	_, _ = w.Write([]byte(d.worker)) // the client is gone if it fails
}

// boot sends the page that starts the worker. It is the same for all pages.
func boot(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", bootPolicy)
	w.Header().Set("Referrer-Policy", "same-origin")
	_, _ = w.Write([]byte(bootPage))
}

// goPlain lets a browser go on without the defence until it ends.
func goPlain(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: plainCookie, Value: "1", Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	to := r.URL.Query().Get("to")
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n") {
		to = "/"
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
